"""Open hostile models, each in a process of its own, and tell how each ended.

``python -m tests.hostile.run [--count 500] [--seed 0] [--family loop] [--json FILE]``; ends with 1
where a model crashed, hung, raised what is no error of flow2onnx, or took more than the limits.
"""

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.hostile.attempt import ACTIONS, Outcome, attempt
from tests.hostile.models import FAMILIES, case


def _outcomes(count: int, seed: int, family: str, actions: list[str]) -> Iterator[Outcome]:
    families = list(FAMILIES)
    for number in range(count):
        if families[number % len(families)].startswith(family):
            name, content = case(number, seed)
            for action in actions:
                yield attempt(name, content, action)


def _print_table(outcomes: list[Outcome]) -> None:
    by_family: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for one in outcomes:
        by_family[one.model.rpartition("-")[0], one.action].append(one)
    print(f"{'family':26} {'action':14} models accepted refused worst-s worst-MB failed")
    for (family, action), group in sorted(by_family.items()):
        kinds = Counter("failed" if not o.ok else "refused" if o.error else "accepted"
                        for o in group)  # fmt: skip
        print(
            f"{family:26} {action:14} {len(group):6} {kinds['accepted']:8} {kinds['refused']:7} "
            f"{max(o.seconds for o in group):7.2f} {max(o.megabytes for o in group):8.0f} "
            f"{kinds['failed']:6}"
        )


def main() -> int:
    """Run the corpus and print the table and what failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", default="", help="only models whose names begin so")
    parser.add_argument("--action", choices=list(ACTIONS), action="append")
    parser.add_argument("--json", type=Path, help="where every outcome is written")
    asked = parser.parse_args()
    begin = time.monotonic()
    outcomes = []
    for o in _outcomes(asked.count, asked.seed, asked.family, asked.action or [*ACTIONS]):
        outcomes.append(o)
        if not o.ok:
            cost = f"{o.seconds:.2f} s, {o.megabytes:.0f} MB"
            print(f"FAILED {o.model} {o.action}: {cost}: {o.error[:300]}", flush=True)
    _print_table(outcomes)
    failed = [o for o in outcomes if not o.ok]
    print(f"{len({o.model for o in outcomes})} models, {len(outcomes)} attempts, {len(failed)} "
          f"failed, {time.monotonic() - begin:.0f} s")  # fmt: skip
    if asked.json:
        asked.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=0))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
