/* Keys that name an engine, as frameworks around transformers have them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "framework.h"
#include "parts.h"
#include "oomplan/option.h"

/* The stage in "ds_z3_config.json", "zero2.json", "stage-3": behind z, zero or stage; -1: none. */
static int stage_of(const char *name)
{
	static const char *const heads[] = {"zero", "stage", "z", NULL};

	for (size_t h = 0; heads[h]; h++)
		for (const char *p = name; *p; p++) {
			const char *d = p + strlen(heads[h]);

			if (strncasecmp(p, heads[h], strlen(heads[h])))
				continue;
			d += strspn(d, "_-o ");
			if (!strncasecmp(d, "stage", 5))
				d += 5 + strspn(d + 5, "_-");
			if (*d >= '0' && *d <= '3' && !isdigit((unsigned char)d[1]))
				return *d - '0';
		}
	return -1;
}

static bool has(const char *text, const char *word)
{
	for (; *text; text++)
		if (!strncasecmp(text, word, strlen(word)))
			return true;
	return false;
}

/* "offload_opt", "offload_opt_param", "zero3_offload": what a file's name says of the host. */
static bool offloads(const char *name, const char *what, const char *other)
{
	return has(name, "offload") && !has(name, "no_offload") && !has(name, "no-offload") &&
	       (has(name, what) || !has(name, other));
}

/* No stage is named: the engine alone is sure. */
static void without_stage(struct fw_part *p, const char *key, const char *path, const char *name)
{
	char told[300];

	snprintf(told, sizeof(told), "%.100s is not found: which ZeRO stage, and is anything offloaded (zero, "
		 "offload-optimizer, offload-params)? give the file too, or --zero", path);
	fw_unmodelled(p, key, told);
	fw_set(p, "zero", "0", key, "no stage is known");
	fw_set(p, "offload-optimizer", offloads(name, "opt", "param") ? "cpu" : "none", key, "the file's name");
	fw_set(p, "offload-params", "none", key, "the file's name");
}

/* Only the name is known. */
static void by_name(struct fw_part *p, const char *key, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	/* parameters are offloaded at stage 3 alone */
	const int named = stage_of(name),
		  stage = named < 0 && has(name, "param") && offloads(name, "param", "opt") ? 3 : named;
	char told[300];

	fw_set(p, "engine", "deepspeed", key, "a DeepSpeed config is named");
	if (stage < 0) {
		without_stage(p, key, path, name);
		return;
	}
	fw_set_whole(p, "zero", stage, key, "the file's name");
	fw_set(p, "offload-optimizer", stage && offloads(name, "opt", "param") ? "cpu" : "none", key, "the file's name");
	fw_set(p, "offload-params", stage == 3 && offloads(name, "param", "opt") ? "cpu" : "none", key,
	       "the file's name");
	if (has(name, "bf16"))
		fw_set(p, "@ds16", "bf16", key, "the file's name");
	snprintf(told, sizeof(told),
		 "%.100s is not found: stage and offload are taken from its name, optimizer and the rest as "
		 "transformers fills in \"auto\"; give the file too",
		 path);
	fw_note(p, key, told);
	fw_open(p, "zero", told);
}

bool fw_by_name(const struct fw_part *p, const char *key)
{
	const char *path = fw_text(p, key);
	char found[512];

	return *path && !part_find_beside(found, sizeof(found), fw_doc(p)->file, path);
}

void fw_name_accelerate(struct fw_part *p, const char *key, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char told[300];

	if (stage_of(name) >= 0 || has(name, "deepspeed")) {
		by_name(p, key, path);
		return;
	}
	if (!has(name, "fsdp")) {
		snprintf(told, sizeof(told),
			 "%.100s is not found: give it too, or --engine, --zero and --gpus as it has them",
			 path);
		fw_unmodelled(p, key, told);
		return;
	}
	fw_set(p, "engine", has(name, "fsdp2") ? "fsdp2" : "fsdp1", key, "the file's name");
	fw_set(p, "zero", "3", key, "FULL_SHARD, accelerate's default");
	fw_default(p, "offload-params", "none", "accelerate's default");
	fw_take_prefetch(p, NULL);
	snprintf(told, sizeof(told),
		 "%.100s is not found: the engine is taken from its name, whole sharding and no offload "
		 "are assumed; give the file too",
		 path);
	fw_note(p, key, told);
	fw_open(p, "zero", told);
	fw_open(p, "offload-params", told);
	fw_set(p, "@fsdp-unseen", "true", key, NULL);
}

/* The file's own name behind folders that are known only when it runs; "". */
static const char *known_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] && !strpbrk(slash, "$`{(<") ? slash + 1 : "";
}

void fw_take_deepspeed(struct fw_part *p, const char *key)
{
	const struct doc_node *node = fw_key(p, key), *open = node ? NULL : doc_below(fw_root(p), key);

	/* "--deepspeed $ROOT/configs/zero2.json": its name is known at least */
	if (open && open->kind == DOC_SCALAR && *known_name(open->text)) {
		by_name(p, key, known_name(open->text));
		fw_set(p, "engine", "deepspeed", NULL, "a DeepSpeed config is named");
		return;
	}
	/* "--deepspeed $CONFIG": DeepSpeed it is, of which stage nobody says */
	if (open && !doc_is_null(open)) {
		fw_set(p, "engine", "deepspeed", NULL, "a DeepSpeed config is named");
		fw_withhold(p, "zero");
		fw_withhold(p, "offload-optimizer");
		fw_withhold(p, "offload-params");
		fw_unmodelled(p, key, "which file is known only when it runs: give it too, or --zero");
		return;
	}
	if (!node || doc_is_off(node))
		return;
	/* a script's own switch, beside options of its own for the stage */
	if (doc_is_true(node) && fw_fact_from_file(p, "zero")) {
		fw_set(p, "engine", "deepspeed", key, NULL);
		return;
	}
	/* The file's own keys in place of a file's name. transformers' TrainingArguments.deepspeed is "dict | str", and
	 * HfArgumentParser.parse_dict hands it on (TRL; LLaMA-Factory hparams/parser.py _parse_args at ff6d4d1, which reads
	 * YAML by OmegaConf.to_container); axolotl's schema has "str | dict[str, Any]" (utils/schemas/config.py:1032 at
	 * 067b021), and writes a map into a file for accelerate (utils/trainer.py setup_deepspeed_env). */
	if (node->kind == DOC_MAP) {
		fw_set(p, "engine", "deepspeed", key, NULL);
		fw_nested(p, key, "deepspeed");
	} else if (node->kind == DOC_SCALAR) {
		if (fw_follow(p, key, node->text))
			fw_set(p, "engine", "deepspeed", key, NULL);
		else
			by_name(p, key, node->text);
	}
}

/* A member of fsdp_config by its name with and without "fsdp_". */
static const struct doc_node *option(const struct fw_part *p, const char *config, const char *name)
{
	char path[120];
	const struct doc_node *node;

	snprintf(path, sizeof(path), "%s.fsdp_%s", config, name);
	node = fw_key(p, path);
	if (node)
		return node;
	snprintf(path, sizeof(path), "%s.%s", config, name);
	return fw_key(p, path);
}

static bool says(const struct doc_node *node, const char *word)
{
	char text[200];

	return node && has(doc_show(node, text, sizeof(text)), word);
}

void fw_take_prefetch(struct fw_part *p, const char *const *keys)
{
	const char *word = "";

	fw_unset(p, "backward-prefetch");
	if (!fw_fact_is(p, "engine", "fsdp1"))
		return;
	for (size_t i = 0; keys && keys[i]; i++) {
		word = fw_text(p, keys[i]);
		if (!strcasecmp(word, "backward_pre") || !strcasecmp(word, "backward_post"))
			fw_set(p, "backward-prefetch", !strcasecmp(word, "backward_pre") ? "pre" : "post", keys[i], NULL);
		else if (!strcasecmp(word, "no_prefetch"))
			fw_set(p, "backward-prefetch", "none", keys[i], NULL);
	}
	fw_default(p, "backward-prefetch", "none", "accelerate utils/dataclasses.py FullyShardedDataParallelPlugin: NO_PREFETCH");
}

void fw_take_fsdp(struct fw_part *p, const char *key, const char *config,
		  const char *default_version)
{
	const struct doc_node *fsdp = fw_key(p, key), *version = option(p, config, "version"),
			      *strategy = option(p, config, "sharding_strategy"),
			      *reshard = option(p, config, "reshard_after_forward"),
			      *offload = option(p, config, "offload_params"), *moved = option(p, config, "cpu_offload");
	const struct doc_node *named = strategy ? strategy : fsdp;
	const char *from = fsdp ? key : config;
	char prefetch[120];
	bool cpu;

	if (doc_is_off(fsdp) && !(fw_key(p, config) && fw_key(p, config)->n && !fsdp))
		return;
	if (!version)
		version = fw_key(p, "fsdp_version");
	fw_set(p, "engine", version ? (!strcmp(version->text, "2") ? "fsdp2" : "fsdp1") : default_version,
	       from, NULL);
	if (!version && !strcmp(default_version, "fsdp1"))
		fw_open(p, "engine", "no version of FSDP is said: 1, as transformers 4 has it; 5.13 takes 2");
	if (fw_fact_is(p, "engine", "fsdp2"))
		fw_default(p, "reduce-dtype", "own", "accelerate utils/dataclasses.py set_mixed_precision");
	snprintf(prefetch, sizeof(prefetch), "%s.%sbackward_prefetch", config,
		 fw_key(p, config) && doc_below(fw_key(p, config), "fsdp_backward_prefetch") ? "fsdp_" : "");
	fw_take_prefetch(p, (const char *const[]){prefetch, NULL});
	if (says(named, "no_shard"))
		fw_set(p, "zero", "0", from, "NO_SHARD");
	else if (says(named, "shard_grad_op") || (reshard && doc_is_off(reshard)) ||
		 says(reshard, "shard_grad_op"))
		fw_set(p, "zero", "2", from, "SHARD_GRAD_OP");
	else
		fw_set(p, "zero", "3", from, "FULL_SHARD");
	if (says(named, "hybrid_shard"))
		fw_set(p, "hybrid-shard", "true", from, "HYBRID_SHARD");
	cpu = doc_is_true(offload) || doc_is_true(moved) || (fsdp && says(fsdp, "offload"));
	fw_set(p, "offload-params", cpu ? "cpu" : "none", from, "CPUOffload");
	fw_set(p, "offload-optimizer", cpu ? "cpu" : "none", from,
	       "states and step are where the shards are");
	if (doc_is_true(option(p, config, "activation_checkpointing"))) {
		fw_set(p, "grad-ckpt", "full", config, "fsdp_activation_checkpointing");
		fw_set(p, "use-reentrant", "false", config, "accelerate accelerator.py: CheckpointImpl.NO_REENTRANT");
	}
}

/* torch._dynamo's backends: "eager" traces alone, "aot_eager" has inductor's partitioner
 * (torch/_dynamo/backends/debugging.py); modes: torch/_inductor/__init__.py list_mode_options. */
void fw_take_compile(struct fw_part *p, const char *backend, const char *mode)
{
	const char *word = backend ? fw_text(p, backend) : "", *how = mode ? fw_text(p, mode) : "";

	if (!fw_fact_is(p, "compile", "true"))
		return;
	if (oom_same_word(word, "eager"))
		fw_set(p, "compile", "false", backend, "torch/_dynamo/backends/debugging.py");
	else if (*word && !oom_same_word(word, "inductor") && !oom_same_word(word, "aot_eager"))
		fw_unmodelled(p, backend, "priced as inductor's partitioner keeps tensors");
	if (oom_same_word(how, "reduce-overhead") || oom_same_word(how, "max-autotune"))
		fw_unmodelled(p, mode, "CUDA graphs keep pools of their own: more than is priced");
}

void fw_megatron_blocks(struct fw_part *p, const char *method, const char *layers)
{
	int64_t n;

	if (!fw_fact_is(p, "grad-ckpt", "full") || !doc_whole(fw_key(p, layers), &n) || n < 1)
		return;
	if (!strcmp(fw_text(p, method), "block"))
		fw_set_whole(p, "recompute-num-layers", n, layers, NULL);
	else if (n > 1)
		fw_unmodelled(p, layers, FW_SEVERAL_AT_ONCE);
}

void fw_megatron_offload(struct fw_part *p, const char *fraction)
{
	if (fw_fact_is(p, "offload-optimizer", "cpu") && fw_key(p, fraction) && atof(fw_text(p, fraction)) < 1)
		fw_unmodelled(p, fraction, "the rest of the states stays on the card: more than is priced");
}

void fw_take_fp8(struct fw_part *p, const char *recipe, const char *key, const char *gather, const char *source)
{
	const char *word = !strncmp(recipe, "rowwise", 7) ? "rowwise" : *recipe ? recipe : "tensorwise";

	if (strcmp(word, "rowwise") && strcmp(word, "tensorwise")) {
		fw_unmodelled(p, key, "a recipe of fp8 that is not modelled: priced as bf16");
		return;
	}
	fw_set(p, "fp8", word, key, source);
	if (gather && fw_on(p, gather))
		fw_unmodelled(p, gather, "shards are gathered in 8 bit: less than is priced");
}

/* Of those that are installed torchao is taken first, then TransformerEngine, then MS-AMP (accelerate accelerator.py
 * Accelerator, fp8_backend). */
void fw_accelerate_fp8(struct fw_part *p, const char *backend, const char *gather)
{
	const char *word = fw_text(p, backend);

	if (strcasecmp(fw_text(p, "mixed_precision"), "fp8") || fw_fact_is(p, "engine", "megatron"))
		return;
	if (*word && !oom_same_word(word, "ao")) {
		fw_unmodelled(p, "mixed_precision", "fp8 products of TransformerEngine or MS-AMP are priced as bf16");
		return;
	}
	fw_take_fp8(p, "tensorwise", "mixed_precision", gather, "accelerate/utils/ao.py convert_to_float8_training");
	fw_set(p, "@launcher-fp8", "true", "mixed_precision", NULL);
	if (!*word)
		fw_note(p, "mixed_precision", "torchao's products, the first choice where no backend is named");
}

void fw_take_token_rows(struct fw_part *p, const char *key, const char *asked, int64_t otherwise, const char *why)
{
	const int64_t tokens = fw_whole_or(p, key, otherwise), length = strtoll(fw_fact(p, "seq-len"), NULL, 10);
	const char *told = fw_key(p, key) ? key : asked;
	int64_t rows, said;

	fw_unset(p, "micro-batch");
	/* a length or a number that the file does not give */
	if ((doc_below(fw_root(p), key) && !doc_whole(fw_key(p, key), &said)) || length <= 0 || tokens <= 0 || tokens > INT32_MAX) {
		fw_withhold(p, "micro-batch");
		fw_unmodelled(p, told, "micro-batches of as many rows as the most tokens of a card hold: give --micro-batch");
		return;
	}
	rows = (tokens + length - 1) / length;
	fw_set_whole(p, "micro-batch", rows, told, why);
	fw_set(p, "@token-rows", "true", NULL, NULL);
}

void fw_take_replicas(struct fw_part *p, int64_t shards, int64_t replicas, const char *key)
{
	if ((replicas < 2 && shards < 2) || replicas >= 100000 || shards >= 100000)
		return;
	if (replicas > 1)
		fw_set_whole(p, "@replicas", replicas, NULL, NULL);
	if (shards > 1)
		fw_set_whole(p, "@shards", shards, NULL, NULL);
	fw_set(p, "hybrid-shard", "true", key, NULL);
}
