"""Lightning: the saves of ``ModelCheckpoint`` in training with DDP, and with ``AsyncCheckpointIO``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from racecheck.targets.suite.protocol import State


class Lightning:
    """``ModelCheckpoint(save_top_k=1, save_last=True)``: ``step=N.ckpt`` of the newest step, and ``last.ckpt``.

    The Trainer is attached by a ``fit`` that stops where training would start; with ``ckpt_path`` that is a load.  A
    save is the callback's ``on_train_batch_end``, which ``fit`` calls after each step.
    """

    requires = ("lightning",)
    plugins: tuple[str, ...] = ()
    save_last = True
    save_top_k = 1

    def __init__(self) -> None:
        self._job: Any = None

    def save(self, state: State, root: Path, step: int) -> None:
        self._attach(state, root)
        self._job.save(state, step)

    def load(self, root: Path, state: State) -> tuple[State, int]:
        from racecheck.targets.suite import state as states

        name = "last.ckpt" if self.save_last else f"step={self.latest(root)}.ckpt"
        self._attach(state, root, str(root / name))
        return states.taken(self._job.module.net, self._job.optimizer), self._job.trainer.global_step

    def latest(self, root: Path) -> int | None:
        import torch

        if not self.save_last:
            names = [re.fullmatch(r"step=(\d+)\.ckpt", each.name) for each in root.iterdir()]
            return max((int(found[1]) for found in names if found), default=None)
        last = root / "last.ckpt"
        return int(torch.load(last, weights_only=True)["global_step"]) if last.exists() else None

    def _attach(self, state: State, root: Path, checkpoint: str = "") -> None:
        if self._job is None or checkpoint:
            self._job = self._job or _TrainerJob(state, root, self)
            self._job.fit(checkpoint)


class LightningAsync(Lightning):
    """``AsyncCheckpointIO`` with ``ModelCheckpoint`` as it is by default: the newest ``step=N.ckpt``, no ``last.ckpt``.

    A thread writes; a save is done when the plugin's ``teardown`` returns.
    """

    plugins = ("AsyncCheckpointIO",)
    save_last = False

    def save(self, state: State, root: Path, step: int) -> None:
        self.save_async(state, root, step).result()

    def save_async(self, state: State, root: Path, step: int) -> Writing:
        super().save(state, root, step)
        return Writing(self._job.trainer.strategy.checkpoint_io)


class Writing:
    """Return the writes that the plugin's thread still has to do."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin

    def result(self) -> None:
        self._plugin.teardown()


class _TrainerJob:
    """Return a Trainer with its module, optimizer and callback."""

    def __init__(self, state: State, root: Path, wanted: Lightning) -> None:
        from lightning import pytorch as lightning
        from lightning.pytorch.callbacks import ModelCheckpoint
        from lightning.pytorch.plugins import io
        from lightning.pytorch.plugins.environments import TorchElasticEnvironment
        from lightning.pytorch.strategies import DDPStrategy

        self.module, self.optimizer = _module(state)
        self.save_last = wanted.save_last
        newest: dict[str, Any] = {"monitor": "step", "mode": "max"} if wanted.save_top_k > 1 else {}
        self.saver = ModelCheckpoint(
            str(root), filename="{step}", every_n_train_steps=1, save_top_k=wanted.save_top_k, **newest
        )
        self.trainer = lightning.Trainer(
            accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), max_epochs=-1,
            num_nodes=int(os.environ["GROUP_WORLD_SIZE"]), strategy=DDPStrategy(process_group_backend="gloo"),
            plugins=[TorchElasticEnvironment(), *(getattr(io, each)() for each in wanted.plugins)],
            callbacks=[_stop_at_start(), self.saver], default_root_dir=str(root), logger=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip

    def fit(self, checkpoint: str) -> None:
        """Attach the Trainer, and load."""
        self.saver.save_last = False  # or it would save at the end of a training without steps
        self.trainer.fit(self.module, _batches(), ckpt_path=checkpoint or None)
        self.saver.save_last = self.save_last

    def save(self, state: State, step: int) -> None:
        from racecheck.targets.suite import state as states

        states.fill(self.module.net, self.optimizer, state)
        progress = self.trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress
        progress.optimizer.step.total.completed = step
        self.saver.on_train_batch_end(self.trainer, self.module, None, None, step)


def _module(state: State) -> tuple[Any, Any]:
    import torch
    from lightning import pytorch as lightning

    from racecheck.targets.suite import state as states

    class Net(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = states.model(state)

        def training_step(self, batch: Any, index: int) -> Any:
            return torch.nn.functional.mse_loss(self.net(batch), batch)

        def configure_optimizers(self) -> Any:
            return optimizer

    module = Net()
    optimizer = states.optimizer(module.net, state)
    return module, optimizer


def _stop_at_start() -> Any:
    from lightning import pytorch as lightning

    class Stop(lightning.Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            trainer.should_stop = True

    return Stop()


def _batches() -> Any:
    import torch

    return torch.utils.data.DataLoader(torch.zeros(4, 8))
