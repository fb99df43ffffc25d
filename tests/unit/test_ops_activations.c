/* Every activation that a config may name, against transformers' own (measured/activations.csv; the same cases in Python:
 * tests/tools/measured/activations.py). */
#include <string.h>

#include "ops/activation.h"
#include "tape_case.h"

/* The word is read as a config's is. */
static struct oom_val named(struct oom_tape *t, const char *word, struct oom_val x)
{
	struct oom_reader r = {.prefix = "", .family = "test"};
	const enum oom_act act = oom_read_act(&r, "hidden_act", word);

	if (r.status)
		oom_tape_fail(t, r.status, "%s", r.err.text);
	return oom_activation(t, act, oom_op_unary(t, OOM_SCALE, x));
}

#define ACTIVATION(word) CASE(word, 64) { return named(t, #word, x); }

ACTIVATION(silu)
ACTIVATION(swish)
ACTIVATION(gelu)
ACTIVATION(gelu_new)
ACTIVATION(gelu_fast)
ACTIVATION(gelu_pytorch_tanh)
ACTIVATION(quick_gelu)
ACTIVATION(gelu_python)
ACTIVATION(gelu_accurate)
ACTIVATION(gelu_python_tanh)
ACTIVATION(gelu_10)
ACTIVATION(relu)
ACTIVATION(relu2)
ACTIVATION(relu6)
ACTIVATION(tanh)
ACTIVATION(sigmoid)
ACTIVATION(hardswish)
ACTIVATION(mish)
ACTIVATION(leaky_relu)
ACTIVATION(linear)
ACTIVATION(laplace)

int main(void)
{
	return tape_cases_check("activations") != 0;
}
