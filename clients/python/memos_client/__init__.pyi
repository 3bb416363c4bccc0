from memos_client import errors as errors
from memos_client import values as values
from memos_client._memos.api.client import *
from memos_client._memos.version import __version__ as __version__
