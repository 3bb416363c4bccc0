from memos_client._memos.errors import *
