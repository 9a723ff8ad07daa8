"""Fills a SQLite file with one finished Optuna study: `optuna_study.py FILE TRIALS SEED`."""

import random
import sys

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

TILES = CategoricalDistribution((32, 64, 128, 256))
LAYOUTS = CategoricalDistribution(("row", "column", "swizzled"))
PARAMETERS = {
    "tile_m": TILES,
    "tile_n": TILES,
    "stages": IntDistribution(1, 8),
    "warps": IntDistribution(1, 16),
    "layout": LAYOUTS,
    "unroll_share": FloatDistribution(0.0, 1.0),
    "prefetch_share": FloatDistribution(0.0, 1.0),
    "tolerance": FloatDistribution(1e-6, 1.0, log=True),
}
AGENTS = ("planner", "coder", "verifier", "judge", "tuner")


def drawn(chance: random.Random, kind: object) -> object:
    if isinstance(kind, CategoricalDistribution):
        return chance.choice(kind.choices)
    if isinstance(kind, IntDistribution):
        return chance.randint(kind.low, kind.high)
    return 10 ** chance.uniform(-6, 0) if kind.log else chance.uniform(kind.low, kind.high)


def main() -> None:
    file, trials, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    chance = random.Random(seed)
    study = optuna.create_study(storage=f"sqlite:///{file}", study_name="night", direction="maximize")
    study.add_trials(
        create_trial(
            state=TrialState.COMPLETE,
            params={name: drawn(chance, kind) for name, kind in PARAMETERS.items()},
            distributions=PARAMETERS,
            value=chance.uniform(0, 10),
            user_attrs={"compile_s": round(chance.uniform(1, 30), 3), "agent": chance.choice(AGENTS)},
            intermediate_values={0: chance.uniform(0, 10)},
        )
        for _ in range(trials)
    )


main()
