"""One call of the model for many requests."""

from prefork.batch.ask import Ask, Reply, Terms
from prefork.batch.batcher import Batcher, run
from prefork.batch.batching import BatchingInstance
from prefork.batch.intake import Intake

__all__ = ["Ask", "Batcher", "BatchingInstance", "Intake", "Reply", "Terms", "run"]
