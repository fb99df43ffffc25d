/* Full paths of modules; expected are the names that named_modules() of transformers 5.12 gives for
 * models of these types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/module_paths.h"
#include "tape/tape.h"

static const struct {
	const char *type;
	struct oom_module_at at;
	const char *path;
	const char *task;
} cases[] = {
	{"llama", {"q_proj", OOM_PART_TEXT, 0, 3, 0, false, false, NULL}, "model.layers.3.self_attn.q_proj", NULL},
	{"llama", {"lm_head", OOM_PART_TEXT, 0, -1, 0, false, false, NULL}, "lm_head", NULL},
	{"llama", {"norm", OOM_PART_TEXT, 0, -1, 0, false, false, NULL}, "model.norm", NULL},
	{"bert", {"dense", OOM_PART_TEXT, 0, 2, 0, false, false, NULL}, "bert.encoder.layer.2.attention.output.dense", NULL},
	{"bert", {"dense", OOM_PART_TEXT, 0, 2, 1, false, false, NULL}, "bert.encoder.layer.2.intermediate.dense", NULL},
	{"bert", {"dense", OOM_PART_TEXT, 0, 2, 2, false, false, NULL}, "bert.encoder.layer.2.output.dense", NULL},
	{"t5", {"q", OOM_PART_TEXT, 0, 4, 0, false, false, NULL}, "encoder.block.4.layer.0.SelfAttention.q", NULL},
	{"t5", {"q", OOM_PART_TEXT, 1, 4, 1, false, false, NULL}, "decoder.block.4.layer.0.EncDecAttention.q", NULL},
	/* transformers 5.12 BartForConditionalGeneration and BartForCausalLM, named_parameters() */
	{"bart", {"q_proj", OOM_PART_TEXT, 1, 3, 1, false, false, NULL}, "model.decoder.layers.3.encoder_attn.q_proj", NULL},
	{"bart", {"q_proj", OOM_PART_TEXT, 0, 3, 0, false, false, NULL}, "model.encoder.layers.3.self_attn.q_proj", NULL},
	{"bart", {"q_proj", OOM_PART_TEXT, 0, 3, 0, false, false, NULL}, "model.decoder.layers.3.self_attn.q_proj", "causal-lm"},
	{"llama", {"o_proj", OOM_PART_TEXT, 0, 3, 0, false, false, NULL}, "model.layers.3.self_attn.o_proj", "causal-lm"},
	{"gpt2", {"c_proj", OOM_PART_TEXT, 0, 1, 1, false, false, NULL}, "transformer.h.1.mlp.c_proj", NULL},
	{"llava", {"linear_1", OOM_PART_PROJECTOR, 0, -1, 0, false, false, NULL}, "model.multi_modal_projector.linear_1", NULL},
	{"qwen2_5_vl", {"gate_proj", OOM_PART_TOWER, 0, 3, 0, false, false, NULL}, "model.visual.blocks.3.mlp.gate_proj", NULL},
	{"qwen2_5_vl", {"gate_proj", OOM_PART_TEXT, 0, 3, 0, false, false, NULL},
	 "model.language_model.layers.3.mlp.gate_proj", NULL},
	/* the classes for sequence classification, likewise */
	{"bert", {"dense", OOM_PART_TEXT, 0, -1, 0, false, false, NULL}, "bert.pooler.dense", "seq-cls"},
	{"bert", {"dense", OOM_PART_TEXT, 0, -1, 0, false, false, NULL}, "cls.predictions.transform.dense", "masked-lm"},
	{"roberta", {"dense", OOM_PART_TEXT, 0, -1, 0, false, false, NULL}, "classifier.dense", "seq-cls"},
	{"llama", {"score", OOM_PART_TEXT, 0, -1, 0, false, false, NULL}, "score", "seq-cls"},
	/* and those for image classification, whose names look like a tower's */
	{"vit", {"q_proj", OOM_PART_TEXT, 0, 2, 0, false, false, NULL}, "vit.layers.2.attention.q_proj", "image-cls"},
	{"siglip", {"fc1", OOM_PART_TEXT, 0, 2, 0, false, false, NULL}, "vision_model.encoder.layers.2.mlp.fc1", "image-cls"},
	/* lists and the like have no parameters of their own, their children do */
	{"resnet", {"classifier", OOM_PART_TEXT, 0, -1, 0, false, true, NULL}, "classifier.1", NULL},
	{"gemma3n_text", {"altup_projections", OOM_PART_TEXT, 0, -1, 1, false, true, NULL},
	 "model.altup_projections.1", NULL},
	/* of two modules with such a child the one that is told */
	{"olmo_hybrid", {"q_proj", OOM_PART_TEXT, 0, 3, 0, false, true, "self_attn"}, "model.layers.3.self_attn.q_proj", NULL},
	{"olmo_hybrid", {"q_proj", OOM_PART_TEXT, 0, 0, 0, false, true, "linear_attn"},
	 "model.layers.0.linear_attn.q_proj", NULL},
	{"resnet", {"convolution", OOM_PART_TEXT, 0, 1, 2, false, true, "layer.1"},
	 "resnet.encoder.stages.1.layers.2.layer.1.convolution", NULL},
	/* and of a list within the layer the element whose turn it is */
	{"t5", {"layer_norm", OOM_PART_TEXT, 1, 4, 2, false, true, NULL}, "decoder.block.4.layer.2.layer_norm", NULL},
	/* what the table does not have is made of what there is */
	{"llama", {"new_proj", OOM_PART_TEXT, 0, 1, 0, false, false, NULL}, "model.layers.1.new_proj", NULL},
	{"no such type", {"q_proj", OOM_PART_TEXT, 0, 1, 0, false, false, NULL}, "layers.1.q_proj", NULL},
	{"no such type", {"score", OOM_PART_TEXT, 0, -1, 0, false, false, NULL}, "score", NULL},
};

static void paths(void **state)
{
	char path[OOM_PATH_SIZE];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		oom_module_path(oom_module_paths(cases[i].type, cases[i].task), &cases[i].at, path);
		assert_string_equal(path, cases[i].path);
	}
}

/* A line that is cut, or deeper than any model, ends; nothing is written past the path. */
static void torn_lines(void **state)
{
	static const char *const torn[] = {"", "a(", "a(b", "a(b(c", ")))", "a(b)),c", "(((((((((((((((((((((((x", ",,,", "a(*(b"};
	const struct oom_module_at at = {"b", OOM_PART_TEXT, 3, 2, 5, false, false, NULL};
	char path[OOM_PATH_SIZE], wide[2000];

	(void)state;
	for (size_t i = 0; i < sizeof(torn) / sizeof(torn[0]); i++)
		oom_module_path(torn[i], &at, path);
	memset(wide, 'x', sizeof(wide));
	wide[sizeof(wide) - 1] = 0;
	oom_module_path(wide, &at, path);
	assert_string_equal(path, "layers.2.b");
	assert_null(oom_module_paths("no such type", NULL));
}

/* A layer that was entered under a name has parameters of its own under that name, in whichever literal it stands: BEiT's
 * lambda_1 (modeling_beit.py BeitLayer) is in none of the layer's modules. */
static void of_the_layer_itself(void **state)
{
	struct oom_tape *t = calloc(1, sizeof(*t));
	char here[] = "layers", there[] = "layers", path[OOM_PATH_SIZE];
	struct oom_param p = {.name = "lambda_1", .scope = there, .unit = 1};

	(void)state;
	assert_non_null(t);
	t->params = &p;
	t->selection.paths = oom_module_paths("beit", NULL);
	t->selection.layer = 2;
	t->selection.outside = here;
	oom_param_path(t, &p, path);
	assert_string_equal(path, "beit.layers.2");
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths),
		cmocka_unit_test(torn_lines),
		cmocka_unit_test(of_the_layer_itself),
	};

	return cmocka_run_group_tests_name("module_paths", tests, NULL, NULL);
}
