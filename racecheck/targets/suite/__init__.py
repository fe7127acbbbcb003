"""Savers under test: the methods of one, the checks that it must stand, and the ones that everybody uses.

    protocol       the methods of a checkpointer, and when which rank calls them
    state          the model and optimizer that it is given
    driver         a rank's side of a check
    checks         the deeds of a job, its world, and the invariants
    load_invariants  the invariants of loads
    check_scenario a checkpointer and a check make a scenario
    controls       checkpointers that hold
    (the others)   adapters over the public interfaces of released checkpointers, one file for each framework

``NAMES`` are the adapters by the name that the command line knows them by.
"""

from __future__ import annotations

from racecheck.targets.suite.check_scenario import applicable, reason_against, scenario
from racecheck.targets.suite.checks import CHECKS, TRIAL, Check
from racecheck.targets.suite.protocol import Checkpointer, Handle, State, Training

__all__ = [
    "CHECKS",
    "NAMES",
    "TRIAL",
    "Check",
    "Checkpointer",
    "Handle",
    "State",
    "Training",
    "applicable",
    "reason_against",
    "scenario",
]

NAMES = {
    "torch-in-place": "racecheck.targets.adapters.torch_save:InPlace",
    "torch-barrier": "racecheck.targets.adapters.torch_save:Barrier",
    "torch-filelock": "racecheck.targets.adapters.torch_save:Locked",
    "torch-rename": "racecheck.targets.adapters.torch_save:Renamed",
    "dcp": "racecheck.targets.adapters.dcp:Dcp",
    "dcp-reused": "racecheck.targets.adapters.dcp:Reused",
    "dcp-threads": "racecheck.targets.adapters.dcp:Threads",
    "dcp-async": "racecheck.targets.adapters.dcp:Async",
    "dcp-async-process": "racecheck.targets.adapters.dcp:AsyncProcess",
    "dcp-to-torch": "racecheck.targets.adapters.dcp:ToTorch",
    "dcp-fsdp2": "racecheck.targets.adapters.dcp_sharded:Fsdp2",
    "dcp-full-state": "racecheck.targets.adapters.dcp_sharded:FullState",
    "dcp-safetensors": "racecheck.targets.adapters.dcp_sharded:Safetensors",
    "control": "racecheck.targets.suite.controls:Recipe",
    "control-dcp": "racecheck.targets.suite.controls:SyncedDcp",
    "accelerate": "racecheck.targets.adapters.huggingface:Accelerate",
    "accelerate-limit": "racecheck.targets.adapters.huggingface:AccelerateLimit",
    "safetensors": "racecheck.targets.adapters.huggingface:Safetensors",
    "trainer": "racecheck.targets.adapters.huggingface:Trainer",
    "lightning": "racecheck.targets.adapters.lightning:Lightning",
    "lightning-async": "racecheck.targets.adapters.lightning:LightningAsync",
    "torchsnapshot": "racecheck.targets.adapters.torchsnapshot:TorchSnapshot",
    "megatron": "racecheck.targets.adapters.megatron:Megatron",
    "deepspeed-zero1": "racecheck.targets.adapters.deepspeed:Zero1",
    "deepspeed-zero3": "racecheck.targets.adapters.deepspeed:Zero3",
    "deepspeed-nvme": "racecheck.targets.adapters.deepspeed:Nvme",
    "ray": "racecheck.targets.adapters.ray_train:Ray",
    "ray-dcp": "racecheck.targets.adapters.ray_train:RayDcp",
    "torchtitan": "racecheck.targets.adapters.torchtitan:Titan",
    "torchtitan-async": "racecheck.targets.adapters.torchtitan:TitanAsync",
    "torchtune": "racecheck.targets.adapters.torchtune:TorchTune",
    "orbax": "racecheck.targets.adapters.orbax:Orbax",
}
