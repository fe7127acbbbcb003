"""The checkpointers of the Hugging Face stack: accelerate's ``save_state``, safetensors, and transformers' ``Trainer``.

accelerate and the Trainer get one model in DDP for the whole job, as they have it in training; before each save it is
given the state's values in place.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

from racecheck.targets.suite.protocol import State

_EXISTS = "Accelerator.save_state raises ValueError by design: 'Checkpoint directory ... already exists. Please ...'"


class Accelerate:
    """``Accelerator.save_state`` and ``load_state``, with automatic naming: ``checkpoints/checkpoint_N``."""

    requires = ("accelerate", "safetensors")
    not_for: ClassVar = {"overwrite": _EXISTS, "kill-overwrite": _EXISTS}
    total_limit: int | None = None

    def __init__(self) -> None:
        self._accelerator: Any = None

    def save(self, state: State, root: Path, step: int) -> None:
        self._prepare(state, root)
        self._accelerator.project_configuration.iteration = step
        self._accelerator.save_state()

    def load(self, root: Path, state: State) -> tuple[State, int]:
        from racecheck.targets.suite import state as states

        self._prepare(state, root)
        step = _newest(root / "checkpoints", r"checkpoint_(\d+)")
        self._accelerator.load_state(str(root / "checkpoints" / f"checkpoint_{step}"))
        return states.taken(self._module, self._optimizer), int(step or 0)

    def latest(self, root: Path) -> int | None:
        return _newest(root / "checkpoints", r"checkpoint_(\d+)")

    def _prepare(self, state: State, root: Path) -> None:
        from accelerate import Accelerator
        from accelerate.utils import ProjectConfiguration

        from racecheck.targets.suite import state as states

        if self._accelerator is None:
            naming = ProjectConfiguration(
                project_dir=str(root), automatic_checkpoint_naming=True, total_limit=self.total_limit
            )
            self._accelerator = Accelerator(cpu=True, project_config=naming)
            self._module = states.model(state)
            self._optimizer = states.optimizer(self._module, state)
            self._accelerator.prepare(self._module, self._optimizer)
        states.fill(self._module, self._optimizer, state)


class AccelerateLimit(Accelerate):
    """The same with ``total_limit=1``."""

    total_limit = 1


class Safetensors:
    """``safetensors.torch.save_file`` of the model by rank 0, a file for each step."""

    requires = ("safetensors",)
    parts = ("model",)

    def save(self, state: State, root: Path, step: int) -> None:
        import torch.distributed as dist
        from safetensors.torch import save_file

        if dist.get_rank() == 0:
            save_file(state["model"], root / f"model-{step}.safetensors")

    def load(self, root: Path, state: State) -> tuple[State, int]:
        from safetensors.torch import load_file

        step = self.latest(root)
        return {"model": load_file(root / f"model-{step}.safetensors")}, int(step or 0)

    def latest(self, root: Path) -> int | None:
        return _newest(root, r"model-(\d+)\.safetensors")


def _newest(directory: Path, pattern: str) -> int | None:
    """Return the highest number in the names that match; None if there is none."""
    names = directory.iterdir() if directory.exists() else ()
    return max((int(found[1]) for each in names if (found := re.fullmatch(pattern, each.name))), default=None)


class Trainer:
    """``transformers.Trainer`` with ``save_steps=1`` and ``save_total_limit``.

    A save is a training step, since the Trainer saves nowhere else: ``train()`` runs one, after which a callback gives
    model and optimizer the values that the Trainer then saves and rotates by itself.  A load is
    ``train(resume_from_checkpoint=True)``, and what model and optimizer have when its first step begins.
    """

    requires = ("transformers", "accelerate")
    save_total_limit = 1
    """It is rank 0 that deletes, when it has written its part of the new one."""

    def __init__(self) -> None:
        self._trainer: Any = None

    def save(self, state: State, root: Path, step: int) -> None:
        self._prepare(state, root)
        self._steering.save(state, step)
        self._trainer.train()

    def load(self, root: Path, state: State) -> tuple[State, int]:
        return self.resume(root, state, True)

    def resume(self, root: Path, state: State, checkpoint: str | bool) -> tuple[State, int]:
        """Load a checkpoint, or (True) the one that the Trainer takes for the last."""
        self._prepare(state, root)
        self._steering.load()
        self._trainer.train(resume_from_checkpoint=checkpoint)
        found: tuple[State, int] = self._steering.loaded
        return found

    def latest(self, root: Path) -> int | None:
        from transformers.trainer_utils import get_last_checkpoint

        found = get_last_checkpoint(str(root))
        return int(found.rpartition("-")[2]) if found else None

    def _prepare(self, state: State, root: Path) -> None:
        if self._trainer is None:
            self._trainer, self._steering = _trainer(state, root, self.save_total_limit)


def _trainer(state: State, root: Path, save_total_limit: int) -> tuple[Any, Any]:
    """Return a Trainer that trains one step at a time, and the callback that defines its saves."""
    import torch
    import torch.distributed as dist
    import transformers

    from racecheck.targets.suite import state as states

    class Net(torch.nn.Sequential):
        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            return {"loss": torch.nn.functional.mse_loss(super().forward(x), labels)}

    class Steering(transformers.TrainerCallback):
        saving: State | None = None

        def save(self, state: State, step: int) -> None:
            self.saving, self.step = state, step

        def load(self) -> None:
            self.saving = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.saving is not None:
                state.global_step = self.step - 1

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.saving is None:
                self.loaded = states.taken(kwargs["model"], kwargs["optimizer"]), state.global_step

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = True
            if self.saving is None:
                control.should_save = False
            else:
                states.fill(kwargs["model"], kwargs["optimizer"], self.saving)

    steering = Steering()
    arguments = transformers.TrainingArguments(
        output_dir=str(root), use_cpu=True, optim="adamw_torch", lr_scheduler_type="constant", max_steps=10**6,
        per_device_train_batch_size=1, save_strategy="steps", save_steps=1, save_total_limit=save_total_limit,
        logging_strategy="no", report_to="none", disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    sample = {"x": torch.zeros(8), "labels": torch.zeros(8)}
    trainer = transformers.Trainer(
        model=Net(*states.model(state)), args=arguments, train_dataset=[sample] * dist.get_world_size(),
        callbacks=[steering],
    )  # fmt: skip
    return trainer, steering
