from memos_client._memos.api.client.values import *
