"""Savers under test: what is asked of one, the checks that it must stand, and the ones that everybody uses.

    protocol       the methods of a checkpointer, who calls them and when
    state          the model and optimizer that it is given
    driving        a rank's side of a check
    checks         what is done, in which world, and what must hold then
    loads          what must hold of loads
    suite          a checkpointer and a check make a scenario
    controls       savers that hold
    mutants        these with a safeguard taken out
    (the others)   adapters over the public interfaces of released savers, one file for each framework

``NAMES`` are the adapters by the name that the command line knows them by.
"""

from __future__ import annotations

from racecheck.checkpointers.checks import CHECKS, Check
from racecheck.checkpointers.protocol import Checkpointer, Handle, State
from racecheck.checkpointers.suite import applicable, reason_against, scenario

__all__ = ["CHECKS", "NAMES", "Check", "Checkpointer", "Handle", "State", "applicable", "reason_against", "scenario"]

NAMES = {
    "torch-in-place": "racecheck.checkpointers.torch_save:InPlace",
    "torch-barrier": "racecheck.checkpointers.torch_save:Barrier",
    "torch-filelock": "racecheck.checkpointers.torch_save:Locked",
    "torch-rename": "racecheck.checkpointers.torch_save:Renamed",
    "dcp": "racecheck.checkpointers.dcp:Dcp",
    "dcp-reused": "racecheck.checkpointers.dcp:Reused",
    "dcp-threads": "racecheck.checkpointers.dcp:Threads",
    "dcp-async": "racecheck.checkpointers.dcp:Async",
    "dcp-async-process": "racecheck.checkpointers.dcp:AsyncProcess",
    "dcp-to-torch": "racecheck.checkpointers.dcp:ToTorch",
    "dcp-fsdp2": "racecheck.checkpointers.dcp_sharded:Fsdp2",
    "dcp-full-state": "racecheck.checkpointers.dcp_sharded:FullState",
    "dcp-safetensors": "racecheck.checkpointers.dcp_sharded:Safetensors",
    "control": "racecheck.checkpointers.controls:Recipe",
    "control-dcp": "racecheck.checkpointers.controls:SyncedDcp",
    "accelerate": "racecheck.checkpointers.huggingface:Accelerate",
    "accelerate-limit": "racecheck.checkpointers.huggingface:AccelerateLimit",
    "safetensors": "racecheck.checkpointers.huggingface:Safetensors",
    "trainer": "racecheck.checkpointers.huggingface:Trainer",
    "lightning": "racecheck.checkpointers.lightning:Lightning",
    "lightning-async": "racecheck.checkpointers.lightning:LightningAsync",
    "torchsnapshot": "racecheck.checkpointers.torchsnapshot:TorchSnapshot",
    "megatron": "racecheck.checkpointers.megatron:Megatron",
    "deepspeed-zero1": "racecheck.checkpointers.deepspeed:Zero1",
    "deepspeed-zero3": "racecheck.checkpointers.deepspeed:Zero3",
    "deepspeed-nvme": "racecheck.checkpointers.deepspeed:Nvme",
    "ray": "racecheck.checkpointers.ray_train:Ray",
    "ray-dcp": "racecheck.checkpointers.ray_train:RayDcp",
    "torchtitan": "racecheck.checkpointers.torchtitan:Titan",
    "torchtitan-async": "racecheck.checkpointers.torchtitan:TitanAsync",
    "torchtune": "racecheck.checkpointers.torchtune:TorchTune",
    "orbax": "racecheck.checkpointers.orbax:Orbax",
}
