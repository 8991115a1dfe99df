"""Client of Little Big Brain sandboxes.

    from lbb import LbbClient

    lbb = LbbClient(url, api_key=key, graph="main")
    lbb.sandboxes.run(code=code, input=[1, 2, 3]).result

AsyncLbbClient has the same names, with await.
"""
from ._async import (AsyncGraphScope, AsyncLbbClient, AsyncSandbox,
                     AsyncSandboxes)
from ._clock import Clock
from ._errors import LbbCapabilityError, LbbError, SandboxWaitError
from ._records import (CommandRecord, FilePage, FileRecord, Limits, LogRecord,
                       Output, Page, Record, RunRecord, SandboxRecord,
                       TemplateRecord, UploadRecord, WorkspaceFile)
from ._retry import RequestOptions, RetryEvent
from ._sync import GraphScope, LbbClient, Sandbox, Sandboxes
from ._version import API_VERSION, VERSION
from ._wire import RESET, RawResponse

__version__ = VERSION
__all__ = [
    "API_VERSION", "AsyncGraphScope", "AsyncLbbClient", "AsyncSandbox",
    "AsyncSandboxes", "Clock", "CommandRecord", "FilePage", "FileRecord",
    "GraphScope", "LbbCapabilityError", "LbbClient", "LbbError", "Limits",
    "LogRecord", "Output", "Page", "RESET", "RawResponse", "Record",
    "RequestOptions", "RetryEvent", "RunRecord", "Sandbox", "SandboxRecord",
    "SandboxWaitError", "Sandboxes", "TemplateRecord", "UploadRecord",
    "VERSION", "WorkspaceFile",
]
