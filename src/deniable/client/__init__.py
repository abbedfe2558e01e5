"""Sessions on a server: `deniable.connect(url, token=...)` has the verbs and the objects of a local session.

    remote_session     RemoteSession and `connect`: each verb is one request
    remote_answers     answers and bounds: the classes of a local session, read from what the server sent
    remote_prices      prices, read in the same way
    remote_standing    standing questions, read in the same way
    request_fields     arguments as fields of a request
    remote_plans       the plan of a question that was asked elsewhere, from its text and the public schema
    registration       `register`: an owner adds a dataset to a server

A request contains a question as SQL or as the steps of a dataframe. The response is a record with the answer as text
for people, and with exact numbers for programs (`queries.answer.machine_records`), which are read at once. The plan
is made only when it is needed, because that takes the public schema, and for SQL the extra "sql".
"""

from deniable.client.registration import register
from deniable.client.remote_answers import RemoteAnswer, RemoteBounds, RemoteGrouped
from deniable.client.remote_prices import RemotePrice
from deniable.client.remote_session import RemoteSession, connect
from deniable.client.remote_standing import RemoteStanding

__all__ = [
    "RemoteAnswer",
    "RemoteBounds",
    "RemoteGrouped",
    "RemotePrice",
    "RemoteSession",
    "RemoteStanding",
    "connect",
    "register",
]
