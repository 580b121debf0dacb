"""The command: `python -m benchmarks` runs everything; options ask for less."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.agenda import MEASURES, Measure
from benchmarks.circumstances import circumstances
from benchmarks.goals import verdicts
from benchmarks.measures.sizes import Sizes
from benchmarks.peers import PEERS
from benchmarks.places import RESULTS
from benchmarks.ratios import ratios
from benchmarks.report import Results, medians_of, report
from benchmarks.rounds import Care, Turn, take_rounds
from benchmarks.servers import ServerFailed, servers
from watchbill.errors import WatchbillError


def main() -> int:
    try:
        return measure_all(_options())
    except (ServerFailed, WatchbillError) as error:
        print(error, file=sys.stderr)
        return 1


def measure_all(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    care = Care(options.repeat, options.patience, options.tolerance)
    results: Results = {}
    with servers():
        about = circumstances()
        print(json.dumps(about, indent=1), flush=True)
        for together in _compared(options.measures):
            results |= {measure.name: {} for measure in together}
            for turn, runs in take_rounds(_turns(together, options.peers), _sizes(options), care, _tell).items():
                results[turn.measure.name][turn.peer] = runs
            _write(options.json, about, results)
    for line in report(results):
        print(line)
    print(f"\n{options.json}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--measures", type=_measures, default=list(MEASURES.values()), help=",".join(MEASURES))
    parser.add_argument("--peers", type=_peers, help=",".join(PEERS))
    parser.add_argument("--repeat", type=int, default=Care.repeat, help="runs of which the median counts")
    parser.add_argument("--patience", type=float, default=Care.patience, help="seconds to wait for a quiet machine")
    parser.add_argument("--tolerance", type=float, default=Care.tolerance, help="cores that others may use")
    for name, meaning in SIZES.items():
        parser.add_argument(f"--{name}", type=int, help=meaning)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    parser.add_argument("--json", type=Path, default=RESULTS / f"{stamp}.json", help="where the figures go")
    return parser.parse_args()


SIZES = {
    "jobs": "of a drain or a bulk",
    "singles": "jobs enqueued one by one",
    "samples": "of the idle pick-up",
    "churn": "jobs worked off before clean and held",
    "depth": "of the deep queue",
}


def _sizes(options: argparse.Namespace) -> Sizes:
    given = {name: getattr(options, name) for name in SIZES if getattr(options, name) is not None}
    return Sizes(**given)


def _measures(text: str) -> list[Measure]:
    return [MEASURES[_known(name, MEASURES)] for name in text.split(",")]


def _peers(text: str) -> list[str]:
    return [_known(name, PEERS) for name in text.split(",")]


def _known(name: str, names: Mapping[str, object]) -> str:
    if name not in names:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(names)}")
    return name


def _taking_part(measure: Measure, chosen: list[str] | None) -> list[str]:
    named = [name for name in measure.peers if chosen is None or name in chosen]
    for name in named:
        if PEERS[name].missing:
            _tell(f"{measure.name:10} {name:16} left out: there is no {PEERS[name].missing}")
    return [name for name in named if not PEERS[name].missing]


def _compared(measures: list[Measure]) -> list[list[Measure]]:
    """Each measure, with those that are measured beside it."""
    names = {measure.name for measure in measures}
    first = [measure for measure in measures if measure.beside not in names]
    return [[measure, *(each for each in measures if each.beside == measure.name)] for measure in first]


def _turns(measures: list[Measure], chosen: list[str] | None) -> list[Turn]:
    """All of one peer's, then the next one's."""
    turns = [Turn(measure, peer) for measure in measures for peer in _taking_part(measure, chosen)]
    return sorted(turns, key=lambda turn: measures[0].peers.index(turn.peer))


def _tell(line: str) -> None:
    print(line, flush=True)


def _write(path: Path, about: dict[str, object], results: Results) -> None:
    """After each measure, so that an interrupted run leaves what it has."""
    medians = medians_of(results)
    wanted = [vars(verdict) for verdict in verdicts(medians)]
    beside = {ratio.text: ratio.value for ratio in ratios(medians)}
    everything = {**about, "medians": medians, "ratios": beside, "wanted": wanted, "runs": results}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
