"""A client that does next to nothing, as NumPy."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    arrays = [array + 0.01 for array in message.content["arrays"].to_numpy_ndarrays()]
    content = {"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=message)
