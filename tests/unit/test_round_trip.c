/* What is read from a training framework's file, written in that framework's words, reads as the same
 * knobs; and the smallest change of a file, written as a patch of it and applied, is what is read then.
 *
 *   test_round_trip FOLDER ...: every file of the folders and of the folders in them; -v: all that is lost
 *
 * A framework without a writer is written as TRL's files, which say less: there a knob that is lost has to
 * be named, and nothing else is asked.  What a framework's own file cannot say is listed with the reason. */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "among.h"
#include "emit/parts.h"
#include "frameworks/parts.h"
#include "oomplan/emit.h"
#include "oomplan/engine.h"
#include "oomplan/option.h"
#include "oomplan/rules.h"

static bool verbose;
static unsigned n_files, n_whole, n_partly, n_wrong, n_patched, n_engines;

static const struct oom_gpu card = {.name = "A100-SXM4-80GB", .memory_gb = 80};

/* The format in which a framework's own files are written. */
static const char *format_of(const char *framework, bool *own)
{
	*own = true;
	for (const struct emit_target *t = emit_targets; t->format.name; t++)
		if (t->framework && !strcmp(t->framework, framework))
			return t->format.name;
	*own = false;
	return "trainer";
}

static const struct emit_target *target_of(const char *format)
{
	for (const struct emit_target *t = emit_targets; t->format.name; t++)
		if (!strcmp(t->format.name, format))
			return t;
	return NULL;
}

static bool named(const struct oom_emitted *e, const char *knob)
{
	const size_t n = strlen(knob);

	for (size_t i = 0; i < e->n_unsaid; i++)
		if (!strncmp(e->unsaid[i], "--", 2) && !strncmp(e->unsaid[i] + 2, knob, n) && e->unsaid[i][2 + n] == ' ')
			return true;
	return false;
}

/* Knobs that the first plan has and the second has otherwise, though nobody said so. */
static void compare(const char *file, const struct emit_target *t, const struct oom_plan *want,
		    const struct oom_plan *got, const struct oom_emitted *e)
{
	struct oom_plan a = *want, b = *got;

	if (a.precision == OOM_AUTO_PRECISION)  /* none was asked for */
		b.precision = a.precision;
	oom_plan_relax(&a);
	oom_plan_relax(&b);
	oom_engine_recast(&a);
	oom_engine_recast(&b);
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);
		char x[160], y[160];

		oom_plan_get(&a, k, x, sizeof(x));
		oom_plan_get(&b, k, y, sizeof(y));
		/* "auto" asks for whatever the framework does, "unsaid" for nothing */
		if (!strcmp(x, y) || (k->kind == OOM_OPTION_CHOICE && (!strcmp(x, "auto") || !strcmp(x, "unsaid"))))
			continue;
		/* a run that never evaluates needs no more */
		if (!strncmp(k->name, "eval-", 5) && (a.evaluates == OOM_EVALUATES_NO || b.evaluates == OOM_EVALUATES_NO))
			continue;
		if (emit_is_aside(k->name) || among(t->elsewhere, k->name) || named(e, k->name) ||
		    emit_spares(t, k->name, x, y))
			continue;
		printf("%s: %s: %s is %s, then %s\n", file, t->format.name, k->name, x, y);
		n_wrong++;
	}
}

/* What no file of a framework can say, though one of its files means it. */
static const struct {
	const char *format, *loss, *why;
} beyond[] = {
	{"trl", "--objective distill", "TRL's GKD and GOLD have no command and no key of their own"},
	{"trl", "--objective grpo", "the arguments of trl/scripts, where no command names them"},
	{"trl", "--seq-len", "TRL's prompts are as long as their data's"},
	{"python", "--seq-len", "the same"},
	{"ms-swift", "--seq-len", "what a file leaves to the model is priced as 1024 tokens"},
	{"trl", "--packed-weights", "an option of fms-hf-tuning's script"},
	{"hf-trainer", "--objective", "the script's, which options do not name"},
	{"hf-trainer", "--task", "the same"}, {"megatron", "--objective grpo", "train_rl.py's, which its arguments do not name"},
	{"torchtitan", "--objective grpo", "a program of its own"},
	{"torchtitan", "--eval-batch", "of validations, whose rhythm no plan has"},
	{"torchtune", "--eval-batch", "the same"},
	{"trl", "--objective orpo", "no command of TRL's starts it, and ORPOConfig has no key of its own"},
	{"trl", "--loss plain", "the loss of those and of online DPO, whose trainers a file does not name"},
	{"trl", "--packing", "open-instruct packs pairs, TRL does not"},
	{"trl", "the model's hub id", "the file names no model"},
	{"hf-trainer", "the model's hub id", "the file names no model"},
	{"hf-trainer", "--base-weights", "adapters whose rank is left to a variable are none"},
	{"hf-trainer", "--liger-kernels all", "without Liger's loss: liger_kernel_config, which is no option"},
	{"hf-trainer", "--data-parallel", "who launches the script decides it, not its options"},
	{"hf-trainer", "--tgt-len", "a key of the scripts, which TrainingArguments do not have"},
	{"hf-trainer", "--predict-with-generate", "a key of Seq2SeqTrainingArguments"},
	{"hf-trainer", "--eval-new-tokens", "the same"},
	{"hf-trainer", "--eval-beams", "the same"},
	{"hf-trainer", "--precision", "of 4-bit weights without adapters"},
	{"hf-trainer", "--optimizer adamw-loop", "transformers' own AdamW, which the version that is written has no more"},
	{"python", "--optimizer adamw-loop", "the same"},
	{"llamafactory", "the model's hub id", "the file names no model"},
	{"verl", "the model's hub id", "the file names no model"},
	{"verl", "--loss fused", "a critic's PPO is priced as tuning, whose trainer does not have it"},
	{"verl", "--engine hf", "ranks without cards"},
	{"verl", "--objective sft", "an actor's update on Megatron is priced as tuning, for which other files are there"},
	{"verl", "--completion-len 256", "the same: no answers, of which its update has the logits with their prompts"},
	{"verl", "--pp-", "stages of a pipeline whose degree is left to a variable"},
	{"verl", "--zero 3", "sharded over cards that the file leaves to a variable"},
	{"openrlhf", "--objective simpo", "a program of somebody's own"},
	{"openrlhf", "the model's hub id", "the file names no model"},
	{"axolotl", "the model's hub id", "the file names no model"},
	{"ms-swift", "the model's hub id", "the file names no model"},
	{"ms-swift", "--lora-targets", "swift 2 took PEFT's own for a model, later ones take every layer"},
	{"ms-swift", "--loss", "TorchAcc's and CELOSS_PARALLEL_SIZE's: variables that are set outside of the command"},
	{"ms-swift", "--liger-kernels", "its kernels without its loss, which a loss of the trainer's own leaves: no plan has that loss"},
	{"ms-swift", "--train", "LISA's layers, which change as it trains"},
	{"python", "the model's hub id", "the file names no model"},
	{"torchtune", "the model's hub id", "the file names no model"},
	{"python", "--objective orpo", "DPOConfig's loss_type, which TRL's trainer refuses"},
	{"python", "--loss tiled", "unsloth's loss; what is written is TRL's"},
	{"python", "--loss-chunk", "the parts of that loss"},
	{"python", "--moe-experts", "unsloth's layers of experts"},
	{"python", "--kv-repeat", "unsloth's attention"},
	{"python", "--liger-kernels", "unsloth's kernels"},
	{"deepspeed", "--param-persistence-threshold", "a key of stage 3, in a file of another stage"},
	{"torchtitan", "--loss tiled", "a part of the Python of today; what is written is TOML"},
	{"torchtitan", "--loss-chunk", "the same"},
	{"torchtitan", "--reduce-dtype", "job_config.py takes float32 alone; forks take more"},
	{"llm-foundry", "the model's hub id", "the file describes an MPT by numbers; what is written is a model of transformers"},
	{"llm-foundry", "--loss flash", "that MPT's loss"},
	{"llm-foundry", "--optimizer adamw-fused", "the plan's own, for a file that names none"},
	{"accelerate", "--cp-comm", "follows from the degree's key"},
};

static bool is_beyond(const char *format, const char *loss)
{
	for (size_t i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++)
		if (!strcmp(beyond[i].format, format) && !strncmp(beyond[i].loss, loss, strlen(beyond[i].loss)))
			return true;
	return false;
}

static void round_trip(const char *file, const struct oom_reading *r, const char *framework)
{
	const char *model = oom_reading_value(r, "model");
	const struct oom_emit_run run = {.model = model, .gpu = &card};
	struct oom_plan want = oom_plan_default(), got = oom_plan_default();
	struct oom_reading *again = NULL;
	const struct emit_target *t;
	struct oom_error err = {{0}};
	struct oom_emitted e;
	bool own;

	t = target_of(format_of(framework, &own));
	oom_reading_apply(r, &want, NULL, NULL);
	if (oom_emit(t->format.name, &want, &run, &e, &err)) {
		printf("%s: %s\n", file, err.text);
		n_wrong++;
		return;
	}
	n_whole += !e.n_unsaid;
	n_partly += e.n_unsaid != 0;
	for (size_t i = 0; i < e.n_unsaid; i++) {
		const bool bad = own && !is_beyond(t->format.name, e.unsaid[i]);

		if (bad || verbose)
			printf("%s %s: %s: %s\n", bad ? "lost" : "unsaid", t->format.name, e.unsaid[i], file);
		n_wrong += bad;
	}
	if (!t->line && oom_reading_of_text(&again, t->reads_as, e.text, e.size, t->framework, &err)) {
		printf("%s: what was written is not read: %s\n%s", file, err.text, e.text);
		n_wrong++;
	}
	if (again) {
		got.seq_len = want.seq_len;
		memcpy(got.lora_targets, want.lora_targets, sizeof(got.lora_targets));
		oom_reading_apply(again, &got, NULL, NULL);
		compare(file, t, &want, &got, &e);
	}
	oom_reading_free(again);
	oom_emitted_release(&e);
}

/* ---- patches ---- */

struct text {
	char *bytes;
	size_t n;
};

static void append(struct text *t, const char *from, size_t n)
{
	char *grown = realloc(t->bytes, t->n + n + 1);

	if (!grown)
		abort();
	memcpy(grown + t->n, from, n);
	t->bytes = grown;
	t->n += n;
	grown[t->n] = 0;
}

static struct text whole_file(const char *path)
{
	struct text t = {.n = 0};
	FILE *f = fopen(path, "rb");
	char buf[4096];
	size_t n;

	append(&t, "", 0);
	while (f && (n = fread(buf, 1, sizeof(buf), f)) > 0)
		append(&t, buf, n);
	if (f)
		fclose(f);
	return t;
}

static const char *line_end(const char *p)
{
	const char *eol = strchr(p, '\n');

	return eol ? eol + 1 : p + strlen(p);
}

/* What patch(1) makes of the one file's hunks; false: they do not apply. */
static bool apply(const char *old, const char *diff, struct text *out)
{
	size_t line = 1;
	const char *d = diff;

	append(out, "", 0);
	for (; *d; d = line_end(d)) {
		unsigned long first;

		if (!strncmp(d, "--- ", 4) || !strncmp(d, "+++ ", 4) || *d == '\\')
			continue;
		if (sscanf(d, "@@ -%lu", &first) == 1) {
			for (; line < first && *old; line++, old = line_end(old))
				append(out, old, (size_t)(line_end(old) - old));
			continue;
		}
		if (*d == ' ' || *d == '-') {
			const size_t n = (size_t)(line_end(d) - d) - 1, have = (size_t)(line_end(old) - old);

			if (strncmp(old, d + 1, have < n ? have : n))
				return false;
			if (*d == ' ')
				append(out, old, have);
			old = line_end(old);
			line++;
		} else if (*d == '+') {
			append(out, d + 1, (size_t)(line_end(d) - d) - 1);
		}
	}
	append(out, old, strlen(old));
	return true;
}

/* Other values of what files say most often, or another engine in the plain one's place, as a patch that gives just
 * them back. */
static void patch_trip(const char *file, const struct oom_reading *r, bool engine)
{
	struct oom_plan from = oom_plan_default(), to, got = oom_plan_default();
	struct text old = whole_file(file), now = {.n = 0};
	struct oom_reading *again = NULL;
	struct oom_error err = {{0}};
	struct oom_emitted e;

	oom_reading_apply(r, &from, NULL, NULL);
	to = from;
	if (engine) {
		to.engine = from.engine == OOM_ENGINE_HF ? OOM_ENGINE_FSDP2 : from.engine;
		to.zero_stage = from.engine == OOM_ENGINE_HF ? 2 : from.zero_stage;
	} else {
		to.micro_batch = from.micro_batch + 3;
		to.seq_len = from.seq_len + 64;
		to.lora_r = from.lora_r ? from.lora_r + 8 : 0;
		to.grad_ckpt = from.grad_ckpt == OOM_CKPT_NONE ? OOM_CKPT_FULL : OOM_CKPT_NONE;
	}
	if (oom_emit_patch(r, &from, &to, &e, &err)) {
		printf("%s: patch: %s\n", file, err.text);
		n_wrong++;
	} else if (strlen(e.text) && strncmp(e.text, "--- ", 4)) {
		/* words alone: the keys stand in what the script writes, which is no file yet */
	} else if (strlen(e.text) && (strncmp(e.text + 4, file, strlen(file)) || e.text[4 + strlen(file)] != '\n')) {
		/* of a file that this one names: the run of both is not put together here */
	} else if (strlen(e.text) && !apply(old.bytes, e.text, &now)) {
		printf("%s: the patch does not apply:\n%s", file, e.text);
		n_wrong++;
	} else if (strlen(e.text) && strstr(e.text + 1, "\n+++ ") && strstr(strstr(e.text + 1, "\n+++ ") + 1, "\n+++ ")) {
		/* of several files: each patch applies, the run of them all is not put together here */
	} else if (strstr(old.bytes, "USE_TORCHACC")) {
		/* checkpoints whatever the options say */
	} else if (now.n && oom_reading_of_text(&again, file, now.bytes, now.n, NULL, &err)) {
		printf("%s: the patched file is not read: %s\n", file, err.text);
		n_wrong++;
	}
	if (again) {
		static const char *const changed[] = {"micro-batch", "seq-len", "lora-r", "grad-ckpt", "engine", "zero"};

		oom_reading_apply(again, &got, NULL, NULL);
		for (size_t i = 0; i < sizeof(changed) / sizeof(changed[0]); i++) {
			const struct oom_option *k = oom_knob_find(changed[i]);
			char x[160], y[160], z[160];

			oom_plan_get(&to, k, x, sizeof(x));
			oom_plan_get(&got, k, y, sizeof(y));
			oom_plan_get(&from, k, z, sizeof(z));
			n_patched += !strcmp(x, y) && strcmp(x, z);
			n_engines += engine && !strcmp(k->name, "engine") && !strcmp(x, y) && strcmp(x, z);
			if (!strcmp(x, y) || (named(&e, k->name) && !strcmp(y, z)))
				continue;
			printf("%s: patch: %s was %s, is to be %s, is read as %s\n%s", file, k->name, z, x, y, e.text);
			n_wrong++;
		}
	}
	oom_reading_free(again);
	oom_emitted_release(&e);
	free(old.bytes);
	free(now.bytes);
}

static void one_file(const char *file)
{
	struct oom_error err = {{0}};
	struct oom_reading *r = NULL;
	const char *framework;

	if (oom_reading_new(&r, &file, 1, NULL, &err))
		return;
	oom_reading_file(r, 0, &framework);
	n_files++;
	round_trip(file, r, framework);
	patch_trip(file, r, false);
	patch_trip(file, r, true);
	oom_reading_free(r);
}

static bool is_setting(const char *name)
{
	static const char *const ends[] = {".yaml", ".yml", ".json", ".toml", ".sh", ".py", ".args", ".ipynb", ".txt"};
	const size_t n = strlen(name);

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i]))
			return true;
	return false;
}

static void folder(const char *path, int depth)
{
	DIR *d = opendir(path);
	struct dirent *e;

	while (d && (e = readdir(d)) != NULL) {
		char below[1024];
		struct stat st;

		if (*e->d_name == '.' || (size_t)snprintf(below, sizeof(below), "%s/%s", path, e->d_name) >= sizeof(below) ||
		    stat(below, &st))
			continue;
		if (S_ISDIR(st.st_mode) && depth)
			folder(below, depth - 1);
		else if (S_ISREG(st.st_mode) && is_setting(e->d_name))
			one_file(below);
	}
	if (d)
		closedir(d);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "-v"))
			verbose = true;
		else
			folder(argv[i], 1);
	printf("%u files, %u written whole, %u with losses that are named, %u values patched, %u engines, %u wrong\n",
	       n_files, n_whole, n_partly, n_patched, n_engines, n_wrong);
	return !n_files ? 77 : n_wrong != 0;    /* the files are not here: skipped */
}
