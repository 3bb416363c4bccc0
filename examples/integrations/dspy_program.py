"""A program of DSPy retrieves on Tuesday what was said on Monday. Its model is scripted here: use your own."""

import tempfile

import dspy
from dspy.utils import DummyLM

from memos import MemOS
from memos.integrations import AgentMemory, Owner
from memos.integrations.dspy import MemosRetrieve

# Stands in for a language model: it knows what its prompt says.
dspy.configure(lm=DummyLM({"Hugo": {"answer": "Your parrot is Hugo."}, "": {"answer": "I do not know."}}))


class Assistant(dspy.Module):
    """Answers with what is remembered, and remembers what it is asked."""

    def __init__(self, memory: AgentMemory, owner: Owner) -> None:
        super().__init__()
        self.memory, self.owner = memory, owner
        self.retrieve = MemosRetrieve(memory, owner, k=3)
        self.answer = dspy.Predict("context, question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        prediction = self.answer(context=self.retrieve(question).passages, question=question)
        said = [{"role": "user", "content": question}, {"role": "assistant", "content": prediction.answer}]
        self.memory.remember(said, self.owner)
        return prediction


with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {Assistant(memory, Owner('ana', thread))(text).answer}")
