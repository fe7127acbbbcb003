"""Why default tests take longer than 5 seconds: a test that is recorded as long must be here, with its reason."""

from __future__ import annotations

REASONS: dict[str, tuple[str, ...]] = {
    "a launch command as a user types it: Python, the launcher, torch and a session of its own": (
        "scenarios/test_launch_commands.py",
        "tests/frontends/test_cli_observing.py",
        "tests/frontends/test_cli_programs.py",
        "tests/frontends/test_cli_recoveries.py",
        "tests/frontends/test_cli_spawning.py",
        "tests/frontends/test_users_files.py",
    ),
    "pytest on a project of its own, which imports torch once more": (
        "tests/frontends/test_launched.py",
        "tests/frontends/test_plugin.py",
        "tests/frontends/test_property_tests.py",
        "tests/gate/test_gate_running.py::TestInTests",
    ),
    "the start or the end of a session is the subject": (
        "tests/frontends/test_cli.py",
        "tests/frontends/test_cli_streams.py",
        "tests/sessions/test_doctor.py",
        "tests/sessions/test_leftovers.py",
        "tests/sessions/test_session.py",
        "tests/supervisor/test_controlled.py::test_unseeded_randomness_comes_from_the_runs_seed",
        "tests/supervisor/test_recorder.py::test_in_a_session_of_another_number_too",
    ),
    "the README's and the guide's commands, run as they stand": ("tests/test_docs.py",),
    "real checkpoint libraries: DCP, FSDP2, accelerate, each on several ranks": (
        "scenarios/test_accelerate_save_state.py",
        "scenarios/test_dcp_node_local.py",
        "scenarios/test_dcp_resave.py",
        "scenarios/test_dcp_timestamped_directories.py",
        "scenarios/test_dcp_two_async_saves.py",
        "scenarios/test_dcp_writer_threads.py",
        "scenarios/test_pytorch_async_save.py",
        "tests/agent/test_reading.py",
        "tests/targets/test_libraries.py",
        "tests/targets/test_torch_checkpointers.py",
    ),
    "a search goes on until its proof, in several storage models or orders": (
        "scenarios/test_latest_first.py",
        "scenarios/test_publish_on_object_storage.py",
        "scenarios/test_transformers_staging_rename.py",
        "tests/supervisor/test_virtual_time.py",
    ),
    "a gate runs seven checks or more, and a FAIL is explained": ("tests/gate/test_gate_running.py",),
    "the explanation of a failure is the subject: tens of runs": (
        "tests/explore/test_findings.py",
        "tests/frontends/test_cli_exploring.py",
        "tests/report/test_first_screen.py",
    ),
    "generated programs on real ranks, as many as it takes to notice each mutant": (
        "tests/explore/test_sleeping_programs.py",
        "tests/scheduling/test_generated_real.py",
        "tests/supervisor/test_waiting_programs.py",
    ),
    "all orders of small programs against brute force": (
        "tests/scheduling/test_dpor.py",
        "tests/scheduling/test_generated.py",
        "tests/scheduling/test_locks.py",
        "tests/scheduling/test_sampling.py",
        "tests/storage/test_swaps.py",
        "tests/supervisor/test_halves.py",
    ),
    "every crash state of a run is recovered from": ("tests/crash/test_crash_judging.py",),
    "hundreds of calls and programs, under control and without": (
        "tests/explore/test_named_gaps.py",
        "tests/faults/test_faults.py",
        "tests/report/test_damaged_findings.py",
        "tests/storage/test_storage_fidelity.py",
        "tests/supervisor/test_channels.py",
        "tests/supervisor/test_fidelity.py",
        "tests/supervisor/test_fidelity_use.py",
        "tests/supervisor/test_sharing.py",
        "tests/supervisor/test_signals.py",
        "tests/supervisor/test_threads.py",
        "tests/supervisor/test_timers.py",
        "tests/targets/test_checks.py",
    ),
    "waits by the real clock are the subject": (
        "tests/sessions/test_scripts.py::test_a_script_that_waits_in_a_way_of_its_own_is_not_waited_for_longer_than_needed",
        "tests/supervisor/test_outside_services.py",
    ),
    "a page with thousands of ops in Chromium": ("tests/report/picture/test_page.py",),
}
"""By reason: tests, or the files whose tests have it."""
