"""A torch module as a file of ONNX, for nodes: exported once, with the newest weights in each file."""

from __future__ import annotations

import io
import warnings

import onnx
import torch
from torch import nn


class OnnxNet:
    """Files of a module. Inputs and outputs are recognised by their names (docs/policies.md); the first axis of each is of rows.

    Args:
        module: The module, whose ``forward`` takes these inputs and gives these outputs.
        inputs: An example of each input, by name.
        outputs: Names of the outputs.
    """

    def __init__(self, module: nn.Module, inputs: dict[str, torch.Tensor], outputs: list[str]):
        self._module, written = module, io.BytesIO()
        names = [*inputs, *outputs]
        with warnings.catch_warnings():
            # The exporter that writes the names of parameters says that there is a newer one, which does not.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                tuple(inputs.values()),
                written,
                input_names=list(inputs),
                output_names=outputs,
                dynamic_axes={name: {0: "rows"} for name in names},
                opset_version=17,
                do_constant_folding=False,
                dynamo=False,
            )
        self._model = onnx.load_from_string(written.getvalue())
        self._weights = {tensor.name: tensor for tensor in self._model.graph.initializer}
        missing = module.state_dict().keys() - self._weights.keys()
        if missing:
            raise ValueError(f"the exporter has renamed {', '.join(sorted(missing))}")

    def file(self) -> bytes:
        """Returns a file with the module's weights as they are now."""
        for name, tensor in self._module.state_dict().items():
            self._weights[name].raw_data = tensor.numpy().tobytes()
        return self._model.SerializeToString()
