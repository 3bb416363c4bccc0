"""The parts of `MemOSClient`, named as those of `MemOS`: cubes, sharing, users, memories, tasks, adapters, others."""

from __future__ import annotations

from memos.api.client import own_activation, own_tasks, own_travel
from memos.api.client import v1_cubes as own_cubes
from memos.api.client import v1_models as own_adapters
from memos.api.client import v1_requests as own_memories
from memos.api.client.blocking import Connection, sends


class Memories:
    """What is remembered, one by one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    add = sends(own_memories.add)
    search = sends(own_memories.search)
    feedback = sends(own_memories.feedback)
    get = sends(own_memories.get)
    list = sends(own_memories.list_)
    update = sends(own_memories.update)
    delete = sends(own_memories.delete)
    history = sends(own_memories.history)
    rollback = sends(own_memories.rollback)
    erase = sends(own_memories.erase)
    erase_receipt = sends(own_memories.erase_receipt)


class Cubes:
    """The cubes of an installation."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    create = sends(own_cubes.create_cube)
    list = sends(own_cubes.list_cubes)
    get = sends(own_cubes.get_cube)
    change = sends(own_cubes.change_cube)
    drop = sends(own_cubes.drop_cube)
    dump = sends(own_travel.dump_cube)
    load = sends(own_travel.load_cube)
    inspect = sends(own_travel.inspect_dump)


class Sharing:
    """Who may do what with a cube."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    grant = sends(own_cubes.grant)
    revoke = sends(own_cubes.revoke)
    grants = sends(own_cubes.grants)


class Users:
    """Users, agents and groups."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    me = sends(own_cubes.me)
    create = sends(own_cubes.create_user)
    list = sends(own_cubes.list_users)
    get = sends(own_cubes.get_user)
    enable = sends(own_cubes.enable_user)
    members = sends(own_cubes.members)
    join = sends(own_cubes.join)
    leave = sends(own_cubes.leave)


class Keys:
    """Keys of users and agents."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    create = sends(own_cubes.create_key)
    list = sends(own_cubes.list_keys)
    limit = sends(own_cubes.limit_key)
    revoke = sends(own_cubes.revoke_key)


class Tasks:
    """Background work."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    list = sends(own_tasks.list_tasks)
    get = sends(own_tasks.get_task)
    retry = sends(own_tasks.retry_task)
    cancel = sends(own_tasks.cancel_task)
    wait = sends(own_tasks.wait_task)
    follow = sends(own_tasks.follow_task)


class Events:
    """What was done to cubes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    list = sends(own_tasks.list_events)
    follow = sends(own_tasks.follow_events)


class Adapters:
    """What of a cube is learned by a model in the server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    list = sends(own_adapters.list_adapters)
    get = sends(own_adapters.get_adapter)
    preview = sends(own_adapters.preview_learning)
    allow = sends(own_adapters.allow_learning)
    disallow = sends(own_adapters.disallow_learning)
    train = sends(own_adapters.train_adapter)
    retrain = sends(own_adapters.retrain_adapter)
    activate = sends(own_adapters.activate_adapter)
    rollback = sends(own_adapters.rollback_adapter)
    diff = sends(own_adapters.diff_adapters)
    forget = sends(own_adapters.forget_learned)
    learn_again = sends(own_adapters.learn_again)
    remove = sends(own_adapters.remove_adapter)
    export = sends(own_adapters.export_adapter)


class Kv:
    """What prompts of a cube begin with, and what of it models in the server keep."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    show = sends(own_activation.show_prefix)
    compose = sends(own_activation.compose_prefix)
    warm = sends(own_activation.warm_prefix)
    drop = sends(own_activation.drop_kv)
    stats = sends(own_activation.kv_stats)
    verify = sends(own_activation.verify_kv)
