/* torchtitan's jobs of today: sections that a function of config_registry.py makes, or options of torchtitan.train above
 * them (torchtitan/config/configs.py, torchtitan/trainer.py Trainer.Config, at 2026-08-21). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "parts.h"
#include "torchtitan.h"

#define CONFIGS "torchtitan/config/configs.py"
#define LOSS "torchtitan/components/loss.py"
#define OPTIMIZER "torchtitan/components/optimizer/optimizer.py"
#define TOKENS "training.num_tokens_per_microbatch_per_dp_rank"
#define A_STEP "training.num_tokens_per_train_step"
#define CONTEXT "training.max_context_length"

const struct fw_row torchtitan_today_rows[] = {
	FW_KEY(CONTEXT, "seq-len", NULL, NULL, CONFIGS " TrainingConfig"),
	/* torchtitan/experiments/rl: the trainer's batch is what the loop packs */
	FW_KEY("async_loop.batcher.batch.local_batch_size", "micro-batch", NULL, NULL, "torchtitan/experiments/rl"),
	FW_KEY("async_loop.batcher.batch.seq_len", "seq-len", NULL, NULL, "torchtitan/experiments/rl"),
	{TOKENS, .hook = true, .source = CONFIGS}, {A_STEP, .hook = true, .source = CONFIGS},
	{"hf_assets_path", .hook = true}, {"hf_model", .hook = true}, {"model_spec", .hook = true},
	{"loss", .hook = true, .source = LOSS}, {"optimizer", .hook = true, .source = OPTIMIZER},
	{"activation_checkpoint", .hook = true, .source = "torchtitan/distributed/activation_checkpoint.py"},
	{"activation_checkpoint.memory_budget", .note = "a budget decides what is recomputed: --grad-ckpt selective is priced"},
	{"validator.enable", .hook = true, .source = "torchtitan/components/validate.py"},
	{"generator", .note = "a generator of answers: none of its cards is priced"},
	{"encoder", .note = "encoders beside the model: more than is priced"},
	{.key = NULL},
};

const char torchtitan_today_idle[] =
	"hf_assets_path dump_folder profiler* tokenizer* dataloader* validator* override* loss* model_spec* comm* renderer* rollouter* "
	"metrics* num_generators generator* generator_router* async_loop* num_samples tokenizer_path inference* module config trainer*";

static const char *class_of(const struct fw_part *p, const char *section)
{
	char path[100];

	snprintf(path, sizeof(path), "%s." REGISTRY_CLASS, section);
	return fw_text(p, path);
}

/* "ChunkedLossWrapper.Config": is it of this class? */
static bool is_class(const char *made, const char *class)
{
	const size_t n = strlen(class);

	return !strncmp(made, class, n) && (!made[n] || made[n] == '.');
}

/* Weights lie in a folder named as their repository is (scripts/download_hf_assets.py), whose owner the name tells. */
static void take_model(struct fw_part *p)
{
	static const char *const owners[][2] = {{"Llama-", "meta-llama"}, {"Qwen", "Qwen"}, {"DeepSeek-", "deepseek-ai"},
						{"deepseek-", "deepseek-ai"}, {"gpt-oss-", "openai"}, {"Kimi-", "moonshotai"},
						{"Moonlight-", "moonshotai"}, {"gemma-", "google"}, {"GLM-", "zai-org"}};
	const char *path = fw_text(p, "hf_assets_path"), *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	if (*fw_text(p, "hf_model")) {
		fw_set(p, "model", fw_text(p, "hf_model"), "hf_model", NULL);
		return;
	}
	for (size_t i = 0; i < sizeof(owners) / sizeof(owners[0]); i++)
		if (!strncmp(name, owners[i][0], strlen(owners[i][0])))
			fw_set(p, "model", reading_text(p->reading, "%s/%s", owners[i][1], name), "hf_assets_path",
			       "scripts/download_hf_assets.py");
}

/* Rows of a batch are a stream of tokens, cut every max_context_length. */
static void take_batch(struct fw_part *p)
{
	int64_t context = 2048, tokens = 16384, step = 0;

	/* what is computed elsewhere is not guessed */
	if (doc_below(fw_root(p), CONTEXT) && !doc_whole(fw_key(p, CONTEXT), &context))
		fw_withhold(p, "seq-len");
	if (doc_below(fw_root(p), TOKENS) && !doc_whole(fw_key(p, TOKENS), &tokens))
		fw_withhold(p, "micro-batch");
	if (context <= 0 || tokens <= 0 || fw_is_withheld(p, "seq-len") || fw_is_withheld(p, "micro-batch"))
		return;
	fw_default(p, "seq-len", "2048", CONFIGS " max_context_length");
	fw_set_whole(p, "micro-batch", tokens > context ? tokens / context : 1, TOKENS, CONFIGS ": tokens over the context's");
	if (doc_whole(fw_key(p, A_STEP), &step) && step > 0)
		fw_set_whole(p, "global-batch", step / context, A_STEP, CONFIGS);
}

static void take_checkpointing(struct fw_part *p)
{
	const struct doc_node *section = doc_below(fw_root(p), "activation_checkpoint");
	const char *class = class_of(p, "activation_checkpoint"), *key = "activation_checkpoint";

	if (section && section->kind != DOC_MAP)
		fw_set(p, "grad-ckpt", "none", key, NULL);
	else if (is_class(class, "FullAC"))
		fw_set(p, "grad-ckpt", "full", key, NULL);
	else if (is_class(class, "MemoryBudgetAC"))
		fw_set(p, "grad-ckpt", "selective", key, NULL);
	else
		fw_set(p, "grad-ckpt", "selective-op", section ? key : NULL, "torchtitan/trainer.py SelectiveAC");
}

/* Parts of the loss, whose backward passes run at once: num_chunks of them, eight where it is not said. */
static void take_loss(struct fw_part *p)
{
	const char *class = class_of(p, "loss");
	int64_t chunks = 8, tokens = 16384;

	if (!is_class(class, "ChunkedLossWrapper")) {
		if (*class && !is_class(class, "CrossEntropyLoss") && !is_class(class, "ChunkedCELoss"))
			fw_open(p, "loss", "a loss of its own: cross entropy of whole logits is priced");
		return;
	}
	doc_whole(fw_key(p, "loss.num_chunks"), &chunks);
	doc_whole(fw_key(p, TOKENS), &tokens);
	fw_set(p, "loss", "chunked", "loss", LOSS " ChunkedLossWrapper");
	fw_set(p, "@price.loss", "tiled", NULL, NULL);
	if (chunks > 0 && tokens > chunks)
		fw_set_whole(p, "loss-chunk", tokens / chunks, "loss", LOSS " num_chunks");
}

static void take_optimizer(struct fw_part *p)
{
	const char *class = class_of(p, "optimizer"), *how = fw_text(p, "optimizer.implementation"),
		   *name = fw_text(p, "optimizer.param_groups.0.optimizer_name");

	if ((*class && !strstr(class, "adamw") && !strstr(class, "OptimizersContainer") && !strstr(class, "TorchFT")) ||
	    (*name && strcmp(name, "AdamW") && strcmp(name, "Adam")))
		fw_unmodelled(p, "optimizer", "no knob for this optimizer: AdamW is priced");
	if (!strcmp(how, "fused_opt_states_bf16"))
		fw_unmodelled(p, "optimizer.implementation", "states in bf16: less than is priced");
	fw_set(p, "optimizer", !strcmp(how, "foreach") ? "adamw" : !strcmp(how, "for-loop") ? "adamw-loop" : "adamw-fused",
	       *how ? "optimizer.implementation" : NULL, OPTIMIZER " implementation");
}

/* What the model's linear layers are turned into. */
static void take_converters(struct fw_part *p)
{
	const struct doc_node *list = doc_below(fw_root(p), "model_spec.converters");
	char rank[24];

	for (const struct doc_node *c = list && list->kind == DOC_LIST ? list->child : NULL; c; c = c->next) {
		const struct doc_node *made = doc_member(c, REGISTRY_CLASS), *r = doc_member(c, "rank");
		const char *class = made && made->text ? made->text : "";
		int64_t n;

		if (is_class(class, "Float8LinearConverter")) {
			fw_take_fp8(p, "tensorwise", "model_spec", NULL, "torchtitan/components/quantization");
		} else if (is_class(class, "LoRAConverter")) {
			snprintf(rank, sizeof(rank), "%" PRId64, doc_whole(r, &n) && n > 0 ? n : 8);
			fw_set(p, "method", "lora", "model_spec", "torchtitan/components/lora.py");
			fw_set(p, "lora-r", rank, "model_spec", "torchtitan/components/lora.py rank");
			fw_unmodelled(p, "model_spec", "adapters on layers that torchtitan names its own way: give --lora-targets");
		} else if (*class) {
			fw_unmodelled(p, "model_spec", reading_text(p->reading, "%.60s: priced as 16-bit layers", class));
		}
	}
}

/* What a row is told by. */
static const char *name_of(const struct fw_row *row)
{
	return !strcmp(row->key, TOKENS)		? "micro-batch" :
	       !strcmp(row->key, "loss")		? "loss" :
	       !strcmp(row->key, "hf_assets_path")	? "model" :
	       !strcmp(row->key, "activation_checkpoint") ? "grad-ckpt" :
	       row->knob && *row->knob != '@'		? row->knob :
							  row->key;
}

/* Which of the sections, by the knobs that say them, other runs of the module have otherwise. */
static const char *differences(struct fw_part *p, const struct doc_node *run, const char *list)
{
	for (size_t l = 0; p->fw->rows[l]; l++)
		for (const struct fw_row *row = p->fw->rows[l]; row->key; row++) {
			const struct doc_node *a = doc_below(p->root, row->key), *b = doc_below(run, row->key);
			const char *name = name_of(row);
			char x[300], y[300];

			if (row->note || (!a && !b) || !(row->knob || row->hook))
				continue;
			if (a && a->kind == DOC_MAP)
				a = doc_member(a, REGISTRY_CLASS);
			if (b && b->kind == DOC_MAP)
				b = doc_member(b, REGISTRY_CLASS);
			if (!strcmp(a ? doc_show(a, x, sizeof(x)) : "", b ? doc_show(b, y, sizeof(y)) : "") || strstr(list, name))
				continue;
			list = reading_text(p->reading, "%s%s%s", list, *list ? ", " : "", name);
		}
	return list;
}

/* The same of pairs that were taken out of a module, which have one value of each: a section's, or the config's own. */
static const char *other_values(struct fw_part *p, const struct doc_node *others)
{
	static const char *const sections[][2] = {{"TrainingConfig.", "training."}, {"ParallelismConfig.", "parallelism."},
						  {"CompileConfig.", "compile."}};
	const char *list = "";

	for (const struct doc_node *c = others->child; c; c = c->next) {
		char path[200];
		const struct fw_row *row;
		bool idle;

		snprintf(path, sizeof(path), "%s", strrchr(c->key, '.') + 1);
		for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
			if (!strncmp(c->key, sections[i][0], strlen(sections[i][0])))
				snprintf(path, sizeof(path), "%s%s", sections[i][1], c->key + strlen(sections[i][0]));
		row = framework_row(p->fw, path, &idle);
		if (row && !idle && !strstr(list, name_of(row)))
			list = reading_text(p->reading, "%s%s%s", list, *list ? ", " : "", name_of(row));
	}
	return list;
}

/* Several runs, and nobody said which. */
static void tell_runs(struct fw_part *p)
{
	const struct doc_node *run = doc_member(p->root, REGISTRY_RUN), *runs = doc_member(p->root, REGISTRY_RUNS),
			      *others = doc_member(p->root, ARGS_OTHERS);
	const char *names = "", *list = "";
	struct oom_setting s = {.key = "config", .value = "", .knob = "", .knob_value = "", .file = p->file, .source = "",
				.kind = OOM_SETTING_UNMODELLED};

	for (const struct doc_node *c = run && runs ? runs->child : NULL; c; c = c->next) {
		names = reading_text(p->reading, "%s%s%s", names, *names ? ", " : "", c->key);
		list = differences(p, c, list);
	}
	if (run) {
		s.value = run->text;
		s.line = run->line;
		s.note = reading_text(p->reading, "one of several runs of this file; they differ in %s; FILE:NAME reads another: %s", list,
				      names);
	} else if (others && *(list = other_values(p, others))) {
		s.line = others->child->line;
		s.note = reading_text(p->reading, "the first of several runs; others differ in %s", list);
	} else {
		return;
	}
	reading_add(p->reading, &s);
}

bool torchtitan_today(struct fw_part *p)
{
	if (!doc_below(p->root, "model_spec") && !fw_key(p, TOKENS) && !fw_key(p, CONTEXT))
		return false;
	tell_runs(p);
	take_model(p);
	if (doc_below(p->root, "async_loop"))
		fw_set(p, "objective", "grpo", "async_loop", "torchtitan/experiments/rl: a policy on the rows it made");
	else
		take_batch(p);
	take_checkpointing(p);
	take_optimizer(p);
	take_converters(p);
	take_loss(p);
	fw_set(p, "eval-batch", fw_on(p, "validator.enable") ? fw_fact(p, "micro-batch") : "0", "validator.enable",
	       "torchtitan/components/validate.py enable");
	if (strstr(class_of(p, "dataloader.dataset.dataset.processor"), "Chat"))
		fw_default(p, "objective", "sft", "ChatProcessor");
	return true;
}
