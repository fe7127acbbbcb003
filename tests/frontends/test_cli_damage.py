"""Launch commands whose checkpoints are damaged before they resume."""

from __future__ import annotations

import json

import pytest

from tests.support.launching import TORCHRUN, Racecheck

NOTHING = ("sound_loops.py", "starts_again_from_nothing")
DAMAGED = ("--watch", "out", "--schedules", 1, "--explain", 0)


def words(how: str, *more: object) -> tuple[object, ...]:
    """Return the words of a job of four steps that is resumed for two more."""
    resumed = " ".join([*TORCHRUN, "damaged.py", how, "6"])
    return ("run", *DAMAGED, *more, "--resume-with", resumed, "--", *TORCHRUN, "damaged.py", how, "4")


def test_a_job_that_falls_back_to_the_save_before_passes(racecheck: Racecheck) -> None:
    status, text = racecheck(*words("digests", "--fault", "damage"))
    assert status == 0, text
    assert "one file is damaged, at a few of its bytes" in text
    assert "damaged files: flip 7, cut 4, zero 2, empty 2, missing 2, older 2" in text


def test_an_unnoticed_flipped_bit_is_found_and_replays(racecheck: Racecheck) -> None:
    status, text = racecheck(*words("trusting", "--fault", "damage kind=flip path=job.pt"))
    assert status == 1, text
    assert "FAIL  damage-refused: with a flipped bit in step-4/job.pt, the resumed job loads what nobody saved" in text
    assert "  damage      the lowest bit of byte " in text
    (finding,) = (line.split()[-1] for line in text.splitlines() if line.strip().startswith("Finding: "))
    status, text = racecheck("replay", finding, "--times", 2, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 2), text


def test_a_job_of_one_rank_is_judged_by_its_steps(racecheck: Racecheck) -> None:
    words_ = [str(each) for each in words("safetensors", "--fault", "damage kind=flip path=state.json")]
    status, text = racecheck(*(each.replace("node=2", "node=1") for each in words_))
    assert status == 1, text
    assert "in step-4/state.json, the resumed job takes other training steps" in text


def test_a_job_that_has_done_all_its_steps_is_judged_by_its_loads(racecheck: Racecheck) -> None:
    told = ("--fault", "damage kind=flip path=state.json")
    status, text = racecheck("run", *DAMAGED, *told, "--", *TORCHRUN, "damaged.py", "safetensors", "4")
    assert status == 0, text
    assert "the recovery takes no training step, so after damage its loads alone are judged" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "kinds", "said"),
    [
        ("dcp", "flip", ["with a flipped bit in step-4/__0_0.distcp, the resumed job loads what nobody saved"]),
        ("dcp", "older", ["with the step-4/__0_0.distcp of an older save, the resumed job loads a mix of saves"]),
        ("dcp", "cut|zero|empty|missing", []),
        (
            "safetensors",
            "flip",
            ["loads what nobody saved", "in step-4/state.json, the resumed job takes other"],
        ),
        (
            "safetensors",
            "older",
            ["with the step-4/state.json of an older save, the resumed job takes other"],
        ),
        (
            "a_file_for_each_rank",
            "flip",
            ["with a flipped bit in step-4/rank0.pt, the resumed job loads what nobody saved"],
        ),
        ("a_file_for_each_rank", "cut|empty|missing", []),
        ("trusting", "cut|empty|missing|older", []),
    ],
)
def test_the_ways_to_save(racecheck: Racecheck, how: str, kinds: str, said: list[str]) -> None:
    status, text = racecheck(*words(how, "--fault", f"damage kind={kinds}"))
    assert status == bool(said), text
    assert all(each in text for each in said), text


def test_a_job_that_reads_no_file_cannot_be_damaged(racecheck: Racecheck) -> None:

    status, text = racecheck("run", *DAMAGED, "--fault", "damage", "--", *TORCHRUN, *NOTHING)
    assert status == 0, text
    assert "the recovery reads no file, so none was damaged" in text
    status, text = racecheck("run", *DAMAGED, "--fault", "damage path=*.pt", "--", *TORCHRUN, *NOTHING)
    assert status == 3, text
    assert "never reached: damage path=*.pt" in text
