"""Activations by the word that a config has for them (transformers/activations.py, ACT2FN): modules, of which some are one
kernel and some several operators in Python."""
from transformers.activations import ACT2FN

from harness import case, main

WORDS = ("silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "gelu_python", "gelu_accurate",
         "gelu_python_tanh", "gelu_10", "relu", "relu2", "relu6", "tanh", "sigmoid", "hardswish", "mish", "leaky_relu",
         "linear", "laplace")


def of(word):
    """Behind a product, as in every feed-forward: what is activated belongs to nobody else."""
    def run(e, x):
        return e.module(lambda: ACT2FN[word] if not isinstance(ACT2FN[word], type) else ACT2FN[word]())(x * 2.0)
    case(64, name=word)(run)


for w in WORDS:
    of(w)


if __name__ == "__main__":
    main()
