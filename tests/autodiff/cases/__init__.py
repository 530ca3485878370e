"""One case or more for each gradient rule, by family."""

from tests.autodiff.cases.attention import ATTENTION, ROTARY
from tests.autodiff.cases.composed import COMPOSED
from tests.autodiff.cases.convolution import CONVOLUTION, TRANSPOSED
from tests.autodiff.cases.elementwise import ACTIVATION, ARITHMETIC, UNARY
from tests.autodiff.cases.grid_sampling import DEFORMED, GRID, REGIONS
from tests.autodiff.cases.indexing import INDEXING
from tests.autodiff.cases.matrix import MATRIX
from tests.autodiff.cases.normalization import NORMALIZATION
from tests.autodiff.cases.pooling import POOLING
from tests.autodiff.cases.recurrent import RECURRENT
from tests.autodiff.cases.reduction import REDUCTION
from tests.autodiff.cases.resize import RESIZE
from tests.autodiff.cases.shape import SHAPE

__all__ = ["CASES", "CONVOLUTION"]

CASES = [
    *UNARY,
    *COMPOSED,
    *ARITHMETIC,
    *MATRIX,
    *REDUCTION,
    *SHAPE,
    *INDEXING,
    *CONVOLUTION,
    *POOLING,
    *ACTIVATION,
    *NORMALIZATION,
    *TRANSPOSED,
    *RESIZE,
    *GRID,
    *DEFORMED,
    *REGIONS,
    *ATTENTION,
    *ROTARY,
    *RECURRENT,
]
