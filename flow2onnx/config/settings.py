"""`flow.config` and `flow.env`: settings of a whole session."""

import logging
from collections.abc import Callable
from typing import Any

from flow2onnx_runtime.world import launched_world

from flow2onnx.config.effects import CALL, IGNORED, PROVIDER, SESSION, TRACE, UNSUPPORTED
from flow2onnx.config.kinds import BOOL, INT, MACHINE, NATURAL, NOTHING, POSITIVE, STR, failure
from flow2onnx.config.surface import Surface
from flow2onnx.config.table import Flag, Record, Table
from flow2onnx.errors import UnsupportedError
from flow2onnx.source import user_frame

__all__ = ["CONFIG", "ENV", "Settings", "SettingsFacade"]

_log = logging.getLogger("flow2onnx.config")

_ONE_MACHINE = "the processes of this job run on another number of machines"
_RUN_HERE = "start them with flow2onnx launch --machines M, torchrun or mpirun; or name one machine"
_NO_NETWORK = "launchers say where processes meet, and torch or MPI how they speak"
_NO_COLLECTIVES = "torch or MPI moves what processes exchange, with settings of its own"
_ARENAS = "ONNX Runtime's memory arenas grow as needed"
_ONE_FORMAT = "flow.checkpoint and flow.train.CheckPoint write one format here"
_NO_SHARED_OBJECT = "operators compiled for OneFlow cannot run on ONNX Runtime"
_COMPOSE = "compose the operator from flow operators inside the job"
_LOGGING = "messages go to Python's logging"
_DEVICES = "default placement of jobs: how many devices of this kind there are"

# A row stays as written, its columns in order.
# fmt: off
CONFIG = Table(
    "flow.config", "val",
    Flag("gpu_device_num", NATURAL, None, TRACE(_DEVICES),
         "GPUs to use; without a usable one, jobs run on the CPU.", required=True),
    Flag("cpu_device_num", NATURAL, None, TRACE(_DEVICES),
         "CPU devices to use; threads are another matter.", required=True),
    Flag("machine_num", POSITIVE, 1, UNSUPPORTED(_ONE_MACHINE, _RUN_HERE, unless=(1,)),
         "Machines to use."),
    Flag("random_seed", NATURAL, 0, TRACE("initial values of variables"),
         "Seed of initial values; 0 derives them from the variables' names alone."),
    Flag("stop_on_non_finite", BOOL, False, TRACE("whether a non-finite loss raises"),
         "Stop at the first loss that is NaN or infinite."),
    Flag("compute_thread_pool_size", POSITIVE, None, SESSION(("intra_op_threads",)),
         "Threads of one operator on the CPU; unset, one per core, and for processes that share a "
         "machine their share of its cores."),
    Flag("enable_tensor_float_32_compute", BOOL, True, PROVIDER("cuda", "use_tf32", {False: "0"}),
         "Let float32 matrix products and convolutions use TF32."),
    Flag("enable_debug_mode", BOOL, False, TRACE("whether the graphs of the jobs are written"),
         "Write the graph of each job as text to flow.env.log_dir.", required=True),
    Flag("enable_legacy_model_io", BOOL, False, IGNORED(_ONE_FORMAT, unless=(False,)),
         "The checkpoint engine before 0.3.2."),
    Flag("legacy_model_io_enabled", NOTHING, None, CALL("legacy_model_io_enabled"),
         "Whether enable_legacy_model_io is on."),
    Flag("enable_model_io_v2", BOOL, False, IGNORED(_ONE_FORMAT, unless=(False,)),
         "A checkpoint engine of 0.1.6.", required=True),
    Flag("load_library", STR, None, UNSUPPORTED(_NO_SHARED_OBJECT, _COMPOSE),
         "Load a shared object of operators when the session starts."),
    Flag("load_library_now", STR, None, UNSUPPORTED(_NO_SHARED_OBJECT, _COMPOSE),
         "Load a shared object of operators at once."),
    Flag("comm_net_worker_num", POSITIVE, 4, IGNORED(_NO_NETWORK), "Threads for the network."),
    Flag("max_mdsave_worker_num", POSITIVE, 64, IGNORED("a checkpoint is written by one thread"),
         "Threads that save a model."),
    Flag("reserved_host_mem_mbyte", NATURAL, 500, IGNORED(_ARENAS),
         "Host memory set aside, in MiB."),
    Flag("reserved_device_mem_mbyte", NATURAL, 500, IGNORED(_ARENAS),
         "Device memory set aside, in MiB."),
    Flag("persistence_buf_byte", NATURAL, None, IGNORED("files are read through Python's buffers"),
         "Buffer of a file reader, in bytes."),
    Flag("save_downloaded_file_to_local_fs", BOOL, False, IGNORED("nothing is downloaded"),
         "Keep what is downloaded."),
    Flag("use_rdma", BOOL, False, IGNORED(_NO_NETWORK), "Send over RDMA."),
    Flag("rdma_mem_block_mbyte", POSITIVE, 8, IGNORED(_NO_NETWORK), "RDMA memory block, in MiB."),
    Flag("rdma_recv_msg_buf_mbyte", POSITIVE, 6, IGNORED(_NO_NETWORK),
         "RDMA receive buffer, in MiB."),
    Flag("enable_numa_aware_cuda_malloc_host", BOOL, False,
         IGNORED("ONNX Runtime allocates pinned memory"), "Pin host memory near its GPU."),
    Flag("thread_enable_local_message_queue", BOOL, False, IGNORED("there are no actor threads"),
         "Queue messages within a thread.", required=True),
    Flag("collect_act_event", BOOL, False, SESSION(("profile",), {True: "flow2onnx"}),
         "Profile every operator: a trace per job, as with runtime.enable_profiling."),
    Flag("enable_mem_chain_merge", BOOL, True, IGNORED("ONNX Runtime plans memory itself"),
         "Merge memory plans of chains."),
    Flag("nccl_use_compute_stream", BOOL, False, IGNORED(_NO_COLLECTIVES),
         "Communicate on the stream that computes."),
    Flag("disable_group_boxing_by_dst_parallel", BOOL, False, IGNORED(_NO_COLLECTIVES),
         "Do not group redistributions by destination."),
    Flag("collective_boxing.enable_fusion", BOOL, True, IGNORED(_NO_COLLECTIVES),
         "Fuse collectives."),
    Flag("collective_boxing.num_callback_threads", POSITIVE, 4, IGNORED(_NO_COLLECTIVES),
         "Threads that answer collectives."),
    Flag("collective_boxing.nccl_num_streams", POSITIVE, 1, IGNORED(_NO_COLLECTIVES),
         "Streams for collectives."),
    Flag("collective_boxing.nccl_fusion_threshold_mb", NATURAL, 16, IGNORED(_NO_COLLECTIVES),
         "Most bytes of a fused collective, in MiB."),
    Flag("collective_boxing.nccl_fusion_all_reduce", BOOL, True, IGNORED(_NO_COLLECTIVES),
         "Fuse all-reduces.", required=True),
    Flag("collective_boxing.nccl_fusion_reduce", BOOL, True, IGNORED(_NO_COLLECTIVES),
         "Fuse reduces.", required=True),
    Flag("collective_boxing.nccl_fusion_broadcast", BOOL, True, IGNORED(_NO_COLLECTIVES),
         "Fuse broadcasts.", required=True),
    Flag("collective_boxing.nccl_fusion_reduce_scatter", BOOL, False, IGNORED(_NO_COLLECTIVES),
         "Fuse reduce-scatters.", required=True),
    Flag("collective_boxing.nccl_fusion_all_gather", BOOL, False, IGNORED(_NO_COLLECTIVES),
         "Fuse all-gathers.", required=True),
    Flag("collective_boxing.nccl_fusion_all_reduce_use_buffer", BOOL, False,
         IGNORED(_NO_COLLECTIVES), "Copy fused all-reduces to a buffer.", required=True),
    Flag("collective_boxing.nccl_fusion_max_ops", POSITIVE, 64, IGNORED(_NO_COLLECTIVES),
         "Most operators of a fused collective."),
    Flag("collective_boxing.nccl_enable_all_to_all", BOOL, False, IGNORED(_NO_COLLECTIVES),
         "Use all-to-all.", required=True),
    Flag("collective_boxing.nccl_enable_mixed_fusion", BOOL, False, IGNORED(_NO_COLLECTIVES),
         "Fuse collectives of different kinds.", required=True),
)

ENV = Table(
    "flow.env", "val",
    Flag("init", NOTHING, None, CALL("init"), "Start the environment."),
    Flag("machine", MACHINE, None, CALL("machine"), "The machines of the cluster."),
    Flag("current_resource", NOTHING, None, CALL("current_resource"), "What the session may use."),
    Flag("ctrl_port", NATURAL, None, IGNORED(_NO_NETWORK), "Port that controls the cluster."),
    Flag("data_port", INT, -1, IGNORED(_NO_NETWORK), "Port that carries data."),
    Flag("log_dir", STR, "./log", TRACE("folder of what enable_debug_mode writes"),
         "Folder of graphs; messages go to Python's logging."),
    Flag("logtostderr", INT, 0, IGNORED(_LOGGING), "Whether to log to the standard error stream."),
    Flag("logbuflevel", INT, -1, IGNORED(_LOGGING), "Up to which level to buffer messages."),
    Flag("grpc_use_no_signal", BOOL, True, IGNORED(_NO_NETWORK), "Keep gRPC from using signals."),
    Flag("init_bootstrap_confs", NOTHING, None, CALL("init_bootstrap_confs"),
         "Start the environment of several machines."),
)
# fmt: on

_BOTH = Table("flow.config and flow.env", "val", *CONFIG.rows.values(), *ENV.rows.values())


class Settings(Record):
    """The settings of one session, which its start makes final."""

    def __init__(self) -> None:
        super().__init__(_BOTH)
        self._environment = self._running = False

    def start(self) -> None:
        """Make every setting final: the session is about to compile its jobs."""
        self._environment = self._running = True

    @property
    def started(self) -> bool:
        """True once the session runs."""
        return self._running

    def set(self, name: str, value: object) -> object:
        """Check and keep a value; once it is too late, warn and return False."""
        if name in ENV.rows:
            return self._too_late() if self._environment else super().set(name, value)
        if self._running:
            return _warn_ignored("the session is running")
        machines = launched_world().machines
        if name == "machine_num" and machines > 1 and value == machines:
            self._values[name] = value
            return None
        return super().set(name, value)

    def init(self) -> bool | None:
        """Start the environment, after which `flow.env` cannot change it."""
        if self._environment:
            return self._too_late()
        self._environment = True
        return None

    def machine(self, *val: object) -> bool | None:
        """Name the machine of the cluster, by address or as ``{"addr": "10.0.0.1"}``.

        Several machines, as arguments or as one list, are those on which a launcher has started the
        processes of the job; other numbers are refused.
        """
        if self._environment:
            return self._too_late()
        given = val[0] if len(val) == 1 and isinstance(val[0], (list, tuple)) else val
        self._one_machine([MACHINE.check("flow.env.machine", m) for m in given])
        return None

    def legacy_model_io_enabled(self) -> bool:
        """True if `enable_legacy_model_io` is on."""
        return bool(self.value("enable_legacy_model_io"))

    def current_resource(self) -> dict[str, Any]:  # of the kinds the rows name
        """Every setting of `flow.config` with its value."""
        rows = CONFIG.rows.values()
        found = {r.name: self.value(r.name) for r in rows if not isinstance(r.effect, CALL)}
        return {**found, "machine_num": launched_world().machines}

    def init_bootstrap_confs(
        self,
        node_list: object,
        master_port: int,
        world_size: int = 0,
        ctrl_port: int = -1,
        node_size: int = -1,
        num_process_per_node: int = -1,
    ) -> None:
        """Nothing, as a launcher has started the processes; refused where none did."""
        if launched_world().size == 1:
            raise _several_machines("flow.env.init_bootstrap_confs")

    def _one_machine(self, machines: list[object]) -> None:
        addresses = [m["addr"] for m in machines if isinstance(m, dict)]
        if not addresses or len(set(addresses)) < len(addresses):
            raise failure(
                f"flow.env.machine takes machines of different addresses; got {addresses}"
            )
        if len(machines) > 1 and len(machines) != launched_world().machines:
            raise _several_machines(f"flow.env.machine with {len(machines)} machines")
        self._values["machine"] = machines[0]

    def _too_late(self) -> bool:
        return _warn_ignored("environment has been initialized")


def _several_machines(asked: str) -> UnsupportedError:
    return UnsupportedError(f"{asked}: {_ONE_MACHINE}", hint=_RUN_HERE, source=user_frame())


def _warn_ignored(why: str) -> bool:
    _log.warning("%s: Nothing happened because %s", user_frame() or "flow2onnx", why)
    return False


class SettingsFacade(Surface):
    """`flow.config` or `flow.env`: a table whose values live in the settings of the session."""

    __slots__ = ()

    def __init__(self, table: Table, get_settings: Callable[[], Settings]) -> None:
        super().__init__(table, get_settings)
