from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_QUEUED: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_DONE: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_CANCELLED: _ClassVar[JobState]
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_QUEUED: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_DONE: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_CANCELLED: JobState

class Submission(_message.Message):
    __slots__ = ("request", "model", "priority", "deadline_s", "idempotency_key", "image", "mask", "preset")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    request: GenerateRequest
    model: str
    priority: int
    deadline_s: float
    idempotency_key: str
    image: bytes
    mask: bytes
    preset: str
    def __init__(self, request: _Optional[_Union[GenerateRequest, _Mapping]] = ..., model: _Optional[str] = ..., priority: _Optional[int] = ..., deadline_s: _Optional[float] = ..., idempotency_key: _Optional[str] = ..., image: _Optional[bytes] = ..., mask: _Optional[bytes] = ..., preset: _Optional[str] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("prompt", "negative_prompt", "width", "height", "steps", "cfg", "sampler", "schedule", "seed", "count", "eta", "clip_skip", "loras", "vae", "strength", "tile_vae", "micro")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_PROMPT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CFG_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ETA_FIELD_NUMBER: _ClassVar[int]
    CLIP_SKIP_FIELD_NUMBER: _ClassVar[int]
    LORAS_FIELD_NUMBER: _ClassVar[int]
    VAE_FIELD_NUMBER: _ClassVar[int]
    STRENGTH_FIELD_NUMBER: _ClassVar[int]
    TILE_VAE_FIELD_NUMBER: _ClassVar[int]
    MICRO_FIELD_NUMBER: _ClassVar[int]
    prompt: str
    negative_prompt: str
    width: int
    height: int
    steps: int
    cfg: float
    sampler: str
    schedule: str
    seed: int
    count: int
    eta: float
    clip_skip: int
    loras: _containers.RepeatedCompositeFieldContainer[LoraUse]
    vae: str
    strength: float
    tile_vae: bool
    micro: MicroConditioning
    def __init__(self, prompt: _Optional[str] = ..., negative_prompt: _Optional[str] = ..., width: _Optional[int] = ..., height: _Optional[int] = ..., steps: _Optional[int] = ..., cfg: _Optional[float] = ..., sampler: _Optional[str] = ..., schedule: _Optional[str] = ..., seed: _Optional[int] = ..., count: _Optional[int] = ..., eta: _Optional[float] = ..., clip_skip: _Optional[int] = ..., loras: _Optional[_Iterable[_Union[LoraUse, _Mapping]]] = ..., vae: _Optional[str] = ..., strength: _Optional[float] = ..., tile_vae: _Optional[bool] = ..., micro: _Optional[_Union[MicroConditioning, _Mapping]] = ...) -> None: ...

class LoraUse(_message.Message):
    __slots__ = ("name", "strength", "text_strength")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STRENGTH_FIELD_NUMBER: _ClassVar[int]
    TEXT_STRENGTH_FIELD_NUMBER: _ClassVar[int]
    name: str
    strength: float
    text_strength: float
    def __init__(self, name: _Optional[str] = ..., strength: _Optional[float] = ..., text_strength: _Optional[float] = ...) -> None: ...

class MicroConditioning(_message.Message):
    __slots__ = ("original_size", "crop_top_left", "target_size")
    ORIGINAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    CROP_TOP_LEFT_FIELD_NUMBER: _ClassVar[int]
    TARGET_SIZE_FIELD_NUMBER: _ClassVar[int]
    original_size: _containers.RepeatedScalarFieldContainer[int]
    crop_top_left: _containers.RepeatedScalarFieldContainer[int]
    target_size: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, original_size: _Optional[_Iterable[int]] = ..., crop_top_left: _Optional[_Iterable[int]] = ..., target_size: _Optional[_Iterable[int]] = ...) -> None: ...

class GenerateStreamRequest(_message.Message):
    __slots__ = ("submission", "previews")
    SUBMISSION_FIELD_NUMBER: _ClassVar[int]
    PREVIEWS_FIELD_NUMBER: _ClassVar[int]
    submission: Submission
    previews: bool
    def __init__(self, submission: _Optional[_Union[Submission, _Mapping]] = ..., previews: _Optional[bool] = ...) -> None: ...

class Generated(_message.Message):
    __slots__ = ("job", "pictures")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PICTURES_FIELD_NUMBER: _ClassVar[int]
    job: Job
    pictures: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., pictures: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("job", "preview", "pictures")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    PICTURES_FIELD_NUMBER: _ClassVar[int]
    job: Job
    preview: bytes
    pictures: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., preview: _Optional[bytes] = ..., pictures: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "client", "state", "model", "request_json", "priority", "position", "created_at", "started_at", "ended_at", "deadline_at", "steps_done", "steps_total", "attempts", "pictures", "failure", "idempotency_key", "preset")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_JSON_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    STEPS_DONE_FIELD_NUMBER: _ClassVar[int]
    STEPS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    PICTURES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    id: str
    client: str
    state: JobState
    model: str
    request_json: str
    priority: int
    position: int
    created_at: float
    started_at: float
    ended_at: float
    deadline_at: float
    steps_done: int
    steps_total: int
    attempts: int
    pictures: _containers.RepeatedCompositeFieldContainer[PictureInfo]
    failure: Failure
    idempotency_key: str
    preset: str
    def __init__(self, id: _Optional[str] = ..., client: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., model: _Optional[str] = ..., request_json: _Optional[str] = ..., priority: _Optional[int] = ..., position: _Optional[int] = ..., created_at: _Optional[float] = ..., started_at: _Optional[float] = ..., ended_at: _Optional[float] = ..., deadline_at: _Optional[float] = ..., steps_done: _Optional[int] = ..., steps_total: _Optional[int] = ..., attempts: _Optional[int] = ..., pictures: _Optional[_Iterable[_Union[PictureInfo, _Mapping]]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., idempotency_key: _Optional[str] = ..., preset: _Optional[str] = ...) -> None: ...

class PictureInfo(_message.Message):
    __slots__ = ("sha256", "bytes", "width", "height", "seed")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    bytes: int
    width: int
    height: int
    seed: int
    def __init__(self, sha256: _Optional[str] = ..., bytes: _Optional[int] = ..., width: _Optional[int] = ..., height: _Optional[int] = ..., seed: _Optional[int] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("kind", "message")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class JobId(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("state", "limit", "before")
    STATE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    state: JobState
    limit: int
    before: str
    def __init__(self, state: _Optional[_Union[JobState, str]] = ..., limit: _Optional[int] = ..., before: _Optional[str] = ...) -> None: ...

class JobPage(_message.Message):
    __slots__ = ("jobs", "next")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    next: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class PictureRequest(_message.Message):
    __slots__ = ("job_id", "index")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    index: int
    def __init__(self, job_id: _Optional[str] = ..., index: _Optional[int] = ...) -> None: ...

class PictureFile(_message.Message):
    __slots__ = ("png", "sha256")
    PNG_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    png: bytes
    sha256: str
    def __init__(self, png: _Optional[bytes] = ..., sha256: _Optional[str] = ...) -> None: ...

class ModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ModelName(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class LoadedModel(_message.Message):
    __slots__ = ("name", "architecture", "sha256", "random", "bytes", "max_pixels", "preset", "sampling")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    RANDOM_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_PIXELS_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    name: str
    architecture: str
    sha256: str
    random: bool
    bytes: int
    max_pixels: int
    preset: str
    sampling: SamplingValues
    def __init__(self, name: _Optional[str] = ..., architecture: _Optional[str] = ..., sha256: _Optional[str] = ..., random: _Optional[bool] = ..., bytes: _Optional[int] = ..., max_pixels: _Optional[int] = ..., preset: _Optional[str] = ..., sampling: _Optional[_Union[SamplingValues, _Mapping]] = ...) -> None: ...

class SamplingValues(_message.Message):
    __slots__ = ("steps", "cfg", "sampler", "schedule")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CFG_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    steps: int
    cfg: float
    sampler: str
    schedule: str
    def __init__(self, steps: _Optional[int] = ..., cfg: _Optional[float] = ..., sampler: _Optional[str] = ..., schedule: _Optional[str] = ...) -> None: ...

class LoadedModels(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[LoadedModel]
    def __init__(self, models: _Optional[_Iterable[_Union[LoadedModel, _Mapping]]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("name", "state", "pid", "device", "jobs", "restarts", "models", "memory_bytes", "free_bytes", "loading", "problem", "preset", "precision")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOADING_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    pid: int
    device: str
    jobs: int
    restarts: int
    models: _containers.RepeatedCompositeFieldContainer[LoadedModel]
    memory_bytes: int
    free_bytes: int
    loading: str
    problem: str
    preset: str
    precision: str
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., pid: _Optional[int] = ..., device: _Optional[str] = ..., jobs: _Optional[int] = ..., restarts: _Optional[int] = ..., models: _Optional[_Iterable[_Union[LoadedModel, _Mapping]]] = ..., memory_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., loading: _Optional[str] = ..., problem: _Optional[str] = ..., preset: _Optional[str] = ..., precision: _Optional[str] = ...) -> None: ...

class DeploymentStatus(_message.Message):
    __slots__ = ("name", "ready", "draining", "queued", "running", "workers", "problem", "refusal", "notices")
    NAME_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    name: str
    ready: bool
    draining: bool
    queued: int
    running: int
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    problem: str
    refusal: str
    notices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., ready: _Optional[bool] = ..., draining: _Optional[bool] = ..., queued: _Optional[int] = ..., running: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., problem: _Optional[str] = ..., refusal: _Optional[str] = ..., notices: _Optional[_Iterable[str]] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("field", "rule", "value_json")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    VALUE_JSON_FIELD_NUMBER: _ClassVar[int]
    field: str
    rule: str
    value_json: str
    def __init__(self, field: _Optional[str] = ..., rule: _Optional[str] = ..., value_json: _Optional[str] = ...) -> None: ...

class Problems(_message.Message):
    __slots__ = ("problems",)
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    def __init__(self, problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ...) -> None: ...
