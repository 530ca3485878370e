"""The programs of OneFlow's documents run as their text says."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from tests.api.seeds import programs

BATCH_SIZE = 20
EPOCHS, BATCHES = 3, 5


def load_data(batch_size):
    """Separable random pictures: a bright row tells the digit."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, (BATCHES, batch_size)).astype(np.int32)
    images = rng.random((BATCHES, batch_size, 1, 28, 28)).astype(np.float32)
    for i, j in np.ndindex(*labels.shape):
        images[i, j, 0, 2 * labels[i, j]] += 3
    return images, labels


def means(call):
    images, labels = load_data(BATCH_SIZE)
    return [call(x, y).mean() for _ in range(EPOCHS) for x, y in zip(images, labels, strict=True)]


def check(losses):
    assert np.isfinite(losses).all()
    assert np.mean(losses[-BATCHES:]) < 0.5 * np.mean(losses[:BATCHES])


def deprecated(define):
    with pytest.warns(DeprecationWarning, match="func_config"):
        return define(BATCH_SIZE)


def test_first_generation():
    train_job, eval_job = programs.first_generation(BATCH_SIZE)
    flow.train.CheckPoint().init()
    check(means(lambda x, y: train_job(x, y).get()))
    images, labels = load_data(BATCH_SIZE)
    logits = eval_job(images[0]).get()
    assert (logits.ndarray().argmax(1) == labels[0]).mean() > 0.8
    assert "Dense-weight" in flow.get_all_variables()
    assert "Dense_1-weight" in flow.get_all_variables()


def test_second_generation():
    train_job = deprecated(programs.second_generation)
    check(means(lambda x, y: train_job(x, y).get()))


def test_second_generation_asynchronous():
    train_job, losses = deprecated(programs.second_generation), []
    images, labels = load_data(BATCH_SIZE)
    for _ in range(EPOCHS):
        for x, y in zip(images, labels, strict=True):
            train_job(x, y).async_get(lambda loss: losses.append(loss.mean()))
    flow.sync_default_session()
    check(losses)


def test_second_generation_annotated():
    train_job = deprecated(programs.second_generation_annotated)
    check(means(train_job))


def test_third_generation():
    train_job = programs.third_generation(BATCH_SIZE, tp.Numpy, programs.get_eval_config())
    check(means(train_job))


def test_third_generation_with_callback():
    train_job, losses = programs.third_generation(BATCH_SIZE), []
    images, labels = load_data(BATCH_SIZE)
    for _ in range(EPOCHS):
        for x, y in zip(images, labels, strict=True):
            train_job(x, y)(lambda loss: losses.append(loss.mean()))
    flow.sync_default_session()
    check(losses)


def test_all_generations_learn_alike():
    """By name the variables start alike, so the named programs agree to the last bit."""
    found = []
    for define in (
        lambda: deprecated(programs.second_generation_annotated),
        lambda: programs.third_generation(BATCH_SIZE, tp.Numpy),
    ):
        found.append(means(define()))
        flow.clear_default_session()
    assert found[0] == found[1]


NAMES = [
    "all_reduce_fp16", "all_reduce_group_min_mbyte", "all_reduce_group_num",
    "all_reduce_group_size_warmup", "all_reduce_lazy_ratio", "allow_cpu_return_op",
    "concurrency_width", "cudnn_buf_limit_mbyte", "cudnn_conv_enable_pseudo_half",
    "cudnn_conv_enable_true_half", "cudnn_conv_force_bwd_data_algo",
    "cudnn_conv_force_bwd_filter_algo", "cudnn_conv_force_fwd_algo",
    "cudnn_conv_heuristic_search_algo", "cudnn_conv_use_deterministic_algo_only",
    "default_data_type", "default_distribute_strategy", "default_initializer_conf",
    "default_placement_scope", "disable_all_reduce_sequence", "enable_all_reduce_group",
    "enable_auto_mixed_precision", "enable_cudnn", "enable_cudnn_conv_pseudo_half",
    "enable_float_compute_for_half_gemm", "enable_inplace", "enable_inplace_in_reduce_struct",
    "enable_keep_header_only", "enable_nccl", "enable_non_distributed_optimizer",
    "enable_reused_mem", "enable_true_half_config_when_conv", "exp_run_conf", "function_desc",
    "indexed_slices_optimizer_conf", "non_distributed_optimizer_group_size_mbyte",
    "prune_parallel_cast_ops", "static_mem_alloc_algo_white_list",
    "static_mem_alloc_policy_white_list", "tensorrt", "train", "use_boxing_v2",
    "use_memory_allocation_algorithm_v2", "use_nccl_inter_node_communication", "use_tensorrt",
    "use_xla_jit",
]  # fmt: skip
GROUPS = ("train", "tensorrt", "static_mem_alloc_algo_white_list",
          "static_mem_alloc_policy_white_list")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_of_the_configuration(name):
    found = getattr(flow.function_config(), name)
    assert callable(found) or name in GROUPS


@pytest.mark.parametrize(
    "name",
    ["function_desc", "loss_scale_factor", "model_update_conf", "primary_lr", "secondary_lr"],
)
def test_names_of_the_training_configuration(name):
    assert callable(getattr(flow.function_config().train, name))
