"""The frozen model that a run starts from, which a KL term or a preference loss compares with."""

from groupwise.errors import ConfigError
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.located import is_adapter_directory
from groupwise.models.policy import Policy, start_policy
from groupwise.models.sharded import sharded


def load_reference(model: ModelConfig, lora: LoraConfig | None, policy: Policy) -> Policy:
    """The model as the run found it: a second one, or the policy with its adapters left out where that is the same.

    Args:
        model: where the run starts.
        lora: what it trains of it.
        policy: the one that is trained, new or resumed.

    Raises:
        ConfigError: the run goes on with adapters that were trained before, so leaving them out gives another model
            than the one it starts from.
    """
    if lora is None:
        return sharded(start_policy(model, None, seed=0, in_rows=True).freeze())
    if is_adapter_directory(model.path):
        raise ConfigError(
            f"model.path = {model.path!r} holds adapters that go on learning, so without them the reference would be "
            "the model they stand on, not the one this run starts from. Export that run (`groupwise export RUN "
            "DIRECTORY`) and start from the directory with new adapters, or train without a reference"
        )
    return policy.base()
