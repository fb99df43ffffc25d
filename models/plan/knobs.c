/* The table of knobs: names, ranges, defaults, sentences and sources.  One row here is an option,
 * an axis and a column.  What a knob needs or excludes stands in rules.c. */
#include <string.h>

#include "oomplan/option.h"
#include "plan/defaults.h"
#include "step/optimizers.h"

OOM_CHOICE_LIST(static, tasks, OOM_TASKS)
OOM_CHOICE_LIST(static, precisions, OOM_PRECISIONS)
OOM_CHOICE_LIST(static, attentions, OOM_ATTENTIONS)
OOM_CHOICE_LIST(static, checkpointings, OOM_CHECKPOINTINGS)
OOM_CHOICE_LIST(static, reentrants, OOM_REENTRANTS)
OOM_CHOICE_LIST(static, autocasts, OOM_AUTOCASTS)
OOM_CHOICE_LIST(static, reduces, OOM_REDUCES)
OOM_CHOICE_LIST(static, prefetches, OOM_PREFETCHES)
OOM_CHOICE_LIST(static, overlaps, OOM_OVERLAPS)
OOM_CHOICE_LIST(static, t5_attentions, OOM_T5_ATTENTIONS)
OOM_CHOICE_LIST(static, quantised_loads, OOM_QUANTISED_LOADS)
OOM_CHOICE_LIST(static, kv_repeats, OOM_KV_REPEATS)
OOM_CHOICE_LIST(static, rope_tables, OOM_ROPE_TABLES)
OOM_CHOICE_LIST(static, experts, OOM_MOE_EXPERTS)
OOM_CHOICE_LIST(static, zero_grads, OOM_ZERO_GRADS)
OOM_CHOICE_LIST(static, scans, OOM_SCANS)
OOM_CHOICE_LIST(static, fp8s, OOM_FP8S)
OOM_CHOICE_LIST(static, losses, OOM_LOSSES)
OOM_CHOICE_LIST(static, ligers, OOM_LIGERS)
OOM_CHOICE_LIST(static, allocators, OOM_ALLOCATORS)
OOM_CHOICE_LIST(static, methods, OOM_METHODS)
OOM_CHOICE_LIST(static, references, OOM_REFERENCES)
OOM_CHOICE_LIST(static, loops, OOM_LOOPS)
OOM_CHOICE_LIST(static, empty_caches, OOM_EMPTY_CACHES)
OOM_CHOICE_LIST(static, rollouts, OOM_ROLLOUTS)
OOM_CHOICE_LIST(static, emas, OOM_EMAS)
OOM_CHOICE_LIST(static, evaluations, OOM_EVALUATES)
OOM_CHOICE_LIST(static, engines, OOM_ENGINES)
OOM_CHOICE_LIST(static, pp_schedules, OOM_PP_SCHEDULES)
OOM_CHOICE_LIST(static, cp_comms, OOM_CP_COMMS)
OOM_CHOICE_LIST(static, layer_impls, OOM_LAYER_IMPLS)
OOM_CHOICE_LIST(static, offloads, OOM_OFFLOADS)
OOM_CHOICE_LIST(static, bases, OOM_BASES)
OOM_CHOICE_LIST(static, quant_storages, OOM_QUANT_STORAGES)
OOM_CHOICE_LIST(static, packed_as, OOM_PACKED_AS)
OOM_CHOICE_LIST(static, adapters, OOM_ADAPTERS)
OOM_CHOICE_LIST(static, lora_biases, OOM_LORA_BIASES)

#define KNOB(n, col, field) .name = n, .column = col, .offset = offsetof(struct oom_plan, field)
#define WORD(list, d) .kind = OOM_OPTION_CHOICE, .metavar = "WORD", .choice = list, .def = d
#define COUNT(lo, hi, d) .kind = OOM_OPTION_COUNT, .metavar = "N", .min = lo, .max = hi, .def = d
#define REAL(word, lo, hi, d) \
	.kind = OOM_OPTION_REAL, .metavar = word, .min = lo, .max = hi, .def = d
#define SHARE(word, hi, d) REAL(word, 0, hi, d), .percent = true
#define SINCE(major, minor) \
	.kind = OOM_OPTION_VERSION, .metavar = "X.Y", .min = OOM_VERSION(major, minor), \
	.max = OOM_VERSION(999, 999), .def = 0
#define FLAG(d) .kind = OOM_OPTION_FLAG, .max = 1, .def = d
#define NAMES(word) .kind = OOM_OPTION_NAMES, .metavar = word
/* transformers fills in a value of its own for the word "auto" */
#define OR_AUTO .automatic = true
#define HF "transformers TrainingArguments"
#define MEGATRON "Megatron-LM"
#define STAGES "transformer_block.py get_num_layers_to_build"
#define ZERO_CONFIG "DeepSpeed zero/config.py"

/* ---- what frameworks call them ---- */

#define ALSO(...) (const struct oom_alias[]){__VA_ARGS__, {.name = NULL}}
#define MEANS(...) (const struct oom_alias_word[]){__VA_ARGS__, {NULL, NULL, NULL}}
/* another name; a flag with the knob's own words; words of its own; a switch and what it sets */
#define AS(n) {.name = n}
#define FLAG_AS(n) {.name = n, .flag = true}
#define WORDS(n, ...) {.name = n, .words = MEANS(__VA_ARGS__)}
#define SWITCH(n, told, ...) {.name = n, .flag = true, .words = MEANS(__VA_ARGS__), .note = told}
#define IGNORED(word) {word, NULL, ""}

/* transformers' bf16 and fp16 are autocast, torch_dtype is what the weights are loaded in
 * (training_args.py, modeling_utils.py): the two make one precision, in either order. */
#define AUTOCAST \
	"read as transformers' autocast, over weights in the config's own dtype as transformers 5 loads " \
	"them, or in that of --torch-dtype"
#define AUTOCAST_FP16 "read as transformers' autocast over fp32 weights"
#define WEIGHTS \
	{"bfloat16", "amp-bf16", "bf16-amp"}, {"bfloat16", "auto-amp", "bf16-amp"}, \
		{"bfloat16", NULL, "bf16"}, {"bf16", "amp-bf16", "bf16-amp"}, \
		{"bf16", "auto-amp", "bf16-amp"}, {"bf16", NULL, "bf16"}, {"float16", NULL, "fp16"}, \
		{"fp16", NULL, "fp16"}, {"float32", "auto", "fp32"}, \
		{"float32", "auto-amp", "amp-bf16"}, IGNORED("float32"), {"fp32", "auto", "fp32"}, \
		{"fp32", "auto-amp", "amp-bf16"}, IGNORED("fp32"), IGNORED("auto")
#define FLASH {"true", NULL, "flash"}, IGNORED("false")
#define BITS {"4", NULL, "plain qlora=true"}, {"8", NULL, "int8"}, IGNORED("16"), IGNORED("32")
/* rank 8 unless one is given: LLaMA-Factory hparams/finetuning_args.py, ms-swift tuner_args.py */
#define TUNER \
	{"lora", "0", "8"}, IGNORED("lora"), {"qlora", "0", "8 qlora=true"}, \
		{"qlora", NULL, "qlora=true"}, {"full", NULL, "0"}
/* by name, or by number as accelerate's questionnaire has them (FullyShardedDataParallelPlugin) */
#define SHARDING \
	{"full_shard", NULL, "3"}, {"shard_grad_op", NULL, "2"}, {"no_shard", NULL, "0"}, \
		{"hybrid_shard", NULL, "3 hybrid-shard=true"}, {"1", NULL, "3"}, {"2", NULL, "2"}, \
		{"3", NULL, "0"}, {"4", NULL, "3 hybrid-shard=true"}

static const struct oom_option knobs[] = {
#include "plan/knobs_step.h"
#include "plan/knobs_training.h"
#include "plan/knobs_machines.h"
	{KNOB("transformers", "transformers", transformers), SINCE(4, 0),
	 .summary = "version of transformers, or newest: what it decides stands in `oomplan list "
		    "generations`",
	 .setting = "transformers.__version__", .source = "release notes",
	 .aliases = ALSO(AS("transformers-version"))},
	{KNOB("torch", "torch", torch), SINCE(1, 0),
	 .summary = "version of PyTorch, or newest", .setting = "torch.__version__",
	 .source = "release notes", .aliases = ALSO(AS("torch-version"))},
	{KNOB("bitsandbytes", "bitsandbytes", bitsandbytes), SINCE(0, 37),
	 .summary = "version of bitsandbytes, or newest", .setting = "bitsandbytes.__version__",
	 .source = "release notes", .aliases = ALSO(AS("bitsandbytes-version"))},
	{KNOB("peft", "peft", peft), SINCE(0, 1),
	 .summary = "version of PEFT, or newest", .setting = "peft.__version__",
	 .source = "release notes", .aliases = ALSO(AS("peft-version"))},
	{KNOB("deepspeed", "deepspeed", deepspeed), SINCE(0, 1),
	 .summary = "version of DeepSpeed, or newest", .setting = "deepspeed.__version__",
	 .source = "release notes", .aliases = ALSO(AS("deepspeed-version"))},
	{KNOB("accelerate", "accelerate", accelerate), SINCE(0, 1),
	 .summary = "version of accelerate, or newest", .setting = "accelerate.__version__",
	 .source = "release notes", .aliases = ALSO(AS("accelerate-version"))},
	{KNOB("margin", "margin", margin), SHARE("SHARE", 0.9, 0.04),
	 .summary = "share of the capacity kept free", .setting = "",
	 .source = "chosen on published outcomes of real cards: planner/README.md"},
};

const struct oom_option *oom_knob_at(size_t i)
{
	return i < sizeof(knobs) / sizeof(knobs[0]) ? &knobs[i] : NULL;
}

const struct oom_option *oom_knob_named(const char *name)
{
	for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++)
		if (*knobs[i].name == *name && !strcmp(knobs[i].name, name))
			return &knobs[i];
	return NULL;
}

const struct oom_option *oom_knob_find(const char *name)
{
	const struct oom_alias *alias;

	for (size_t i = 0; oom_knob_at(i); i++)
		if (oom_option_goes_by(&knobs[i], name, &alias) && !(alias && alias->words))
			return &knobs[i];
	return NULL;
}
