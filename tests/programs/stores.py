"""Every operation of the key-value store.  Not collected by pytest."""

import torch.distributed as dist

import racecheck
from racecheck import Rank


@racecheck.scenario(ranks=1)
def every_operation(rank: Rank) -> list[str]:
    store = dist.TCPStore("localhost", 29501, 1, True)
    store.set("a", "1")
    store.append("a", "2")
    store.multi_set(["b", "c"], ["3", "4"])
    store.queue_push("q", "5")
    store.wait(["a", "b"])
    found = [
        store.get("a"), store.multi_get(["b", "c"]), store.add("n", 6), store.check(["a"]), store.check(["none"]),
        store.compare_set("b", "3", "7"), store.delete_key("c"), store.delete_key("none"), store.num_keys() > 0,
        store.queue_len("q"), store.queue_pop("q"), "a" in "".join(store.list_keys()),
    ]  # fmt: skip
    return [str(each) for each in found]


@racecheck.scenario(ranks=2)
def queue_of_the_group(rank: Rank) -> str:
    """The default store of a process group has a prefix, and so has each of these."""
    store, other = (dist.PrefixStore(each, dist.distributed_c10d._get_default_store()) for each in ("mine", "other"))
    if rank.rank == 0:
        other.queue_push("queue", "not mine")
        store.queue_push("queue", "first")
        store.queue_push("queue", "second")
        return ""
    return f"{store.queue_pop('queue').decode()} {store.queue_pop('queue').decode()} {store.queue_len('queue')}"
