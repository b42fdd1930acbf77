"""The main loop of the worker process: reads messages, steps the batcher and sends messages.

The process exits at once when the server closes its end of the channel, or on SIGTERM. It ignores SIGINT,
because Ctrl-C in a terminal reaches both processes and the server decides what to do.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import NoReturn

from calotype.core.cuda_init import init_cuda_driver_async
from calotype.core.errors import CalotypeError, ExitCode
from calotype.serve.ipc.channel import BlockingChannel, ChannelError
from calotype.serve.ipc.messages import (
    TO_WORKER,
    ForgetResults,
    Hello,
    Load,
    ModelFailed,
    RunWorkflow,
    Stop,
    ToWorker,
    Unload,
    Watch,
    Work,
)
from calotype.serve.model_names import served_name
from calotype.serve.worker.batcher import Batcher
from calotype.serve.worker.fake_engine import FakeLoader
from calotype.serve.worker.image_encoder import Emit, ImageEncoder
from calotype.serve.worker.log_forwarding import log_json_to
from calotype.serve.worker.model_cache import ModelCache
from calotype.serve.worker.options import WorkerOptions, most_rows, parsed
from calotype.serve.worker.progress_stages import Stages
from calotype.serve.worker.protocols import Loader, failure_of
from calotype.serve.worker.workflow_engines import NodeEngines
from calotype.serve.worker.workflow_runner import WorkflowRunner
from calotype.serve.workflow.catalogue import WorkflowCatalogue
from calotype.workflow.registry import load_registry

_log = logging.getLogger(__name__)

Inbox = SimpleQueue[tuple[ToWorker, list[bytes]]]


def main() -> NoReturn:
    """Run a worker until its channel closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    fd, options = parsed(sys.argv[1:])
    log_json_to(sys.stderr, worker_pid=os.getpid())
    channel = BlockingChannel(socket.socket(fileno=fd), TO_WORKER)
    inbox: Inbox = SimpleQueue()
    Thread(target=_listen, args=(channel, inbox), name="channel reader", daemon=True).start()
    try:
        code = work(channel, inbox, options)
    # Catch BaseException: DeviceLostError is one, and a failed worker must exit.
    except BaseException:
        _log.critical("the worker ends", exc_info=True)
        code = ExitCode.BUG
    channel.close()
    # A normal exit would wait for threads of libraries.
    os._exit(code)


def _listen(channel: BlockingChannel[ToWorker], inbox: Inbox) -> None:
    try:
        for received in channel:
            inbox.put(received)
    except ChannelError as error:
        _log.critical("the channel is broken: %s", error)
        os._exit(ExitCode.BUG)
    _log.info("the server has gone, the worker ends")
    os._exit(ExitCode.OK)


def work(channel: BlockingChannel[ToWorker], inbox: Inbox, options: WorkerOptions) -> ExitCode:
    """Send Hello and process messages. Returns only if the initial models cannot be loaded."""
    names = [served_name(model) for model in options.models]
    loading = names[0] if names else ""
    stages = Stages(channel.send)
    try:
        loader = loader_of(options)
        models = ModelCache(
            loader,
            memory_bytes=options.memory_bytes,
            on_change=channel.send,
            on_loading=channel.send,
            stages=stages,
        )
        for loading in names:
            models.load(loading)
    except CalotypeError as error:
        _log.critical("%s", error)
        channel.send(ModelFailed(model=loading, failure=failure_of(error)))
        return error.exit_code
    encoder = ImageEncoder(channel.send)
    rows = most_rows(options.max_rows, loader.device)
    batcher = Batcher(models, channel.send, encoder, most_rows=rows, stages=stages)
    workflows = workflows_of(options, loader, models, channel.send, stages)
    channel.send(
        Hello(
            pid=os.getpid(),
            device=loader.device,
            preset=loader.preset,
            precision=loader.precision,
            room=rows,
        )
    )
    while True:
        busy = turn(batcher, workflows)
        _dispatch(inbox, batcher, workflows, models, wait=not busy)


def turn(batcher: Batcher, workflows: WorkflowRunner) -> bool:
    """Step both; False if neither had work."""
    busy = [batcher.step(opens=not workflows.needs_memory), workflows.step()]
    return any(busy)


def _dispatch(
    inbox: Inbox, batcher: Batcher, workflows: WorkflowRunner, models: ModelCache, *, wait: bool
) -> None:
    """Dispatch the messages in the inbox; with `wait`, wait for at least one."""
    while wait or not inbox.empty():
        message, attachments = inbox.get()
        wait = False
        match message:
            case Work() | Load():
                batcher.add(message, attachments)
            case RunWorkflow():
                workflows.add(message, attachments)
            case Stop():
                batcher.stop(message.job_id)
                workflows.stop(message.job_id)
            case Watch():
                batcher.set_watched(message.job_id, message.previews)
            case Unload():
                models.unload(message.model)
            case ForgetResults():
                workflows.forget_results()


def loader_of(options: WorkerOptions) -> Loader:
    """Return the loader of the real or the fake engine."""
    kind, _, limit = options.engine.partition(":")
    if kind == "nothing":
        return FakeLoader(out_of_memory_over=int(limit) if limit else None)
    init_cuda_driver_async(options.device)
    from calotype.serve.worker.engine_adapter import RealLoader  # noqa: PLC0415 - imports torch

    return RealLoader(
        device=options.device,
        precision=options.precision,
        preset=options.preset,
        models_folder=options.models_folder,
        paths={served_name(model): model for model in options.models},
        warm=options.warm,
        max_rows=options.max_rows,
    )


def workflows_of(
    options: WorkerOptions, loader: Loader, models: ModelCache, emit: Emit, stages: Stages
) -> WorkflowRunner:
    """Return the workflow runner; with the fake engine, only nodes of packages are available."""
    registry = load_registry()
    for left_out in registry.left_out:
        _log.warning("nodes of %s are not available: %s", left_out.package, left_out.reason)
    names = [served_name(model) for model in options.models]
    catalogue = partial(WorkflowCatalogue, options.models_folder, names)
    if isinstance(loader, FakeLoader):
        return WorkflowRunner(registry, emit, NodeEngines(models, loader), catalogue=catalogue, stages=stages)
    from calotype.serve.worker.workflow_models import meaning, node_engines  # noqa: PLC0415 - imports torch

    engines = node_engines(options, loader, models)
    return WorkflowRunner(registry, emit, engines, catalogue=catalogue, stages=stages, meaning=meaning)
