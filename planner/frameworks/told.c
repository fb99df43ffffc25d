/* What is said of a file as a whole, after its keys were read: which of its knobs are somebody else's to decide.
 *
 * A default stands for an absent key.  It is no more than a guess where the program that is started is none of the
 * framework's, where some of the arguments are made elsewhere, and where a key that nobody knows has the name of just
 * that setting.  Each of these is told by the knob's name. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "arguments.h"
#include "oomplan/option.h"
#include "parts.h"

/* What a key is about by the words of its name: "~x" stands anywhere in it, "x" between its dots, dashes and bars.
 * The first row that fits counts. */
static const struct {
	const char *words, *knob;
} bearings[] = {
	{"~gradient_checkpoint ~grad_checkpoint ~grad_ckpt ~activation_checkpoint ~checkpoint_activation ~recompute remat",
	 "grad-ckpt"},
	{"~flash ~attn_impl ~attention_impl ~attention_backend xformers sdpa", "attn"},
	{"~4bit ~8bit ~4_bit ~8_bit nf4 ~quantiz bnb bits qlora int8 int4", "base-bits"},
	{"~target_modules", "lora-targets"},
	{"~lora_dropout", "lora-dropout"},
	{"~modules_to_save", "modules-to-save"},
	{"~lora ~adapter peft", "lora-r"},
	{"~freeze ~frozen ~trainable", "method"},
	{"~global_batch ~total_batch", "global-batch"},
	{"~eval_batch ~val_batch", "eval-batch"},
	{"~accumulat grad_acc", "grad-accum"},
	{"~batch_size ~micro_batch bsz", "micro-batch"},
	{"~packing ~pack_seq", "packing"},
	{"~seq_len ~sequence_len ~context_len ~max_len ~model_max_length ~cutoff ~block_size ~max_tokens", "seq-len"},
	{"bf16 fp16 fp32 dtype ~precision amp autocast half bfloat16 float16", "precision"},
	{"~optim", "optimizer"},
	{"~liger ~fused_linear ~cut_cross ~unsloth ~chunked_loss", "loss"},
	{"~tensor_parallel ~tensor_model_parallel tp", "tp"},
	{"~pipeline_parallel ~pipeline_model_parallel pp", "pp"},
	{"~context_parallel ~sequence_parallel ~ulysses ~ring_attn cp", "cp"},
	{"~expert_parallel ~expert_model_parallel ep", "ep"},
	{"~offload", "offload-optimizer"},
	{"~zero_stage ~sharding", "zero"},
	{"fsdp fsdp2 ddp deepspeed", "engine"},
	{"~num_gpu ~n_gpu ~gpus ~nproc ~num_process ~world_size devices", "gpus"},
	{"~num_node ~nnodes ~num_machine", "nodes"},
	{"dpo orpo kto simpo grpo ppo reward rlhf distill distillation kd", "objective"},
	{"~compile", "compile"},
};

static bool is_letter(char c)
{
	return isalnum((unsigned char)c) != 0;
}

/* `word` in a name whose '-' are '_': anywhere, or as a word of its own. */
static bool has_word(const char *name, const char *word, size_t n, bool anywhere)
{
	for (const char *at = name; *at; at++) {
		size_t i = 0;

		while (i < n && at[i] && (at[i] == '-' ? '_' : tolower((unsigned char)at[i])) == word[i])
			i++;
		if (i == n && (anywhere || ((at == name || !is_letter(at[-1])) && !is_letter(at[n]))))
			return true;
	}
	return false;
}

static const char *bearing_of(const char *key)
{
	for (size_t i = 0; i < sizeof(bearings) / sizeof(bearings[0]); i++)
		for (const char *w = bearings[i].words; *w; w += strspn(w, " ")) {
			const size_t n = strcspn(w, " ");
			const bool anywhere = *w == '~';

			if (has_word(key, w + anywhere, n - anywhere, anywhere))
				return bearings[i].knob;
			w += n;
		}
	return NULL;
}

/* Does a key that is known say the knob?  Precision is said in pieces (settle.c). */
static bool is_said(const struct fw_part *p, const char *knob)
{
	return fw_fact_from_file(p, knob) || (!strcmp(knob, "precision") && (fw_fact_from_file(p, "@dtype") ||
									     fw_fact_from_file(p, "@autocast")));
}

#define BY_NAME "by its name it is about "

/* A key that is not known, and whose name is that of a setting which no known key says. */
static void tell_unknown(struct fw_part *p)
{
	for (size_t i = p->first_setting; i < p->reading->n_settings; i++) {
		struct oom_setting *s = &p->reading->settings[i];
		const char *knob = s->kind == OOM_SETTING_UNKNOWN && *s->value ? bearing_of(s->key) : NULL;

		/* a part within this one has told it */
		if (!knob || s->file != p->file || is_said(p, knob) || strstr(s->note, BY_NAME))
			continue;
		s->note = reading_text(p->reading, "%s%s" BY_NAME "%s, which is not taken from it", s->note,
				       *s->note ? " " : "", knob);
	}
}

/* The knob that some framework has a row of this very name for; NULL: none has. */
static const char *elsewhere(const char *name)
{
	const struct framework *fw;

	for (size_t i = 0; (fw = framework_at(i)) != NULL; i++)
		for (size_t l = 0; fw->rows && fw->rows[l]; l++)
			for (const struct fw_row *r = fw->rows[l]; r->key; r++) {
				const char *leaf = strrchr(r->key, '.');

				if (r->knob && *r->knob != '@' && oom_same_word(leaf ? leaf + 1 : r->key, name))
					return r->knob;
			}
	return NULL;
}

/* A key that a '*' of a list, or a map above it, says to be without effect: nobody has looked at it by its name.  Where
 * that name is a setting's in another framework, which nothing else says here, it is told as unknown ones are. */
static void tell_covered(struct fw_part *p)
{
	const size_t above = strlen(p->prefix);

	for (size_t i = p->first_setting; i < p->reading->n_settings; i++) {
		struct oom_setting *s = &p->reading->settings[i];
		const char *leaf = strrchr(s->key, '.'), *knob, *said_elsewhere;

		if (s->kind != OOM_SETTING_IDLE || s->file != p->file || !*s->value || *s->note || strncmp(s->key, p->prefix, above))
			continue;
		knob = bearing_of(leaf ? leaf + 1 : s->key);
		said_elsewhere = knob ? elsewhere(leaf ? leaf + 1 : s->key) : NULL;
		if (!said_elsewhere || strcmp(knob, said_elsewhere) || is_said(p, knob) || framework_names(p->fw, s->key + above))
			continue;
		s->kind = OOM_SETTING_UNMODELLED;
		s->note = reading_text(p->reading, BY_NAME "%s, which is not taken from it", knob);
	}
}

/* Some arguments are made elsewhere: an absent key may be among them. */
static void open_defaults(struct fw_part *p, const char *why)
{
	for (size_t i = 0; i < p->n_facts; i++)
		if (!p->facts[i].from_file && !p->facts[i].open)
			fw_open(p, p->facts[i].knob, why);
}

/* One sentence about the program that a command starts. */
static void add_program(struct fw_part *p, const struct doc_node *program, const char *note)
{
	const struct oom_setting s = {.key = "program", .knob = "", .knob_value = "", .source = "", .note = note,
				      .value = reading_text(p->reading, "%s", program->text), .line = program->line,
				      .file = p->command ? p->command->file : p->file, .kind = OOM_SETTING_UNMODELLED};

	reading_add(p->reading, &s);
}

static const char *and_also(struct fw_part *p, const char *list, const char *name)
{
	return reading_text(p->reading, "%s%s%s", list, *list ? ", " : "", name);
}

/* A script that nobody knows decides what it loads, how it attends and what it trains, whatever its options leave out:
 * one sentence for all of that. */
static void tell_script(struct fw_part *p, const struct doc_node *program)
{
	static const char *const decided[] = {"objective", "method", "lora-r", "lora-dropout", "attn", "grad-ckpt", "loss",
					      "packing"};
	const char *list = "", *own = "";

	for (size_t i = 0; i < sizeof(decided) / sizeof(decided[0]); i++) {
		const struct fact *f = part_fact(p, decided[i]);

		if (f && !f->from_file && !f->open && !(f->key && *f->key == '('))
			list = and_also(p, list, decided[i]);
	}
	/* what weights are loaded in is the script's as well */
	if (part_fact(p, "@dtype") && !fw_fact_from_file(p, "@dtype"))
		list = and_also(p, list, "precision");
	if (p->own_trainer && part_fact(p, "optimizer") && !fw_fact_from_file(p, "optimizer")) {
		list = and_also(p, list, "optimizer");
		own = reading_text(p->reading, " (%.60s is its own)", p->own_trainer);
	}
	if (*list)
		add_program(p, program, reading_text(p->reading, "a script that is not known here%s%s: %s are what %s takes by "
				"default, its code may decide otherwise", p->script ? " beyond its options" : "", own, list,
				p->fw->name));
}

/* "swift/cli/sft.py" by its last name, "verl.trainer.main_ppo" and "swift sft" whole. */
static bool is_its_own(const struct fw_part *p, const char *program)
{
	const size_t n = strlen(program);
	const bool script = n > 3 && !strcmp(program + n - 3, ".py");
	const char *slash = script ? strrchr(program, '/') : NULL;
	char name[200];

	snprintf(name, sizeof(name), "%s", slash ? slash + 1 : program);
	if (script)
		name[strlen(name) - 3] = 0;
	return framework_lists(p->fw->commands, name);
}

/* Another program's options have a framework's names: what it takes where it is silent is its own affair. */
static void tell_stranger(struct fw_part *p, const struct doc_node *program)
{
	const char *list = "";

	for (size_t i = 0; i < p->n_facts; i++) {
		struct fact *f = &p->facts[i];

		if (f->from_file || f->open || (f->key && *f->key == '('))
			continue;
		if (*f->knob != '@')
			list = and_also(p, list, f->knob);
		else if (!strcmp(f->knob, "@dtype"))
			list = and_also(p, list, "precision");
	}
	if (*list && p->fw->last_resort)
		add_program(p, program, reading_text(p->reading, "a script of no known framework, read by the names of its options "
				"alone: nothing says %s, which are guesses; its code may decide these and anything else otherwise", list));
	else if (*list)
		add_program(p, program, reading_text(p->reading, "not a program of %s, whose keys it has: %s are what that "
				"takes by default, this one may take others", p->fw->name, list));
}

/* Where the shell ends the command before its writer does. */
static void tell_cut(struct fw_part *p)
{
	const struct doc_node *cut = p->command ? NULL : doc_member(p->root, ARGS_CUT);
	const struct oom_setting s = {
		.key = "#", .value = "", .knob = "", .knob_value = "", .file = p->file, .line = cut ? cut->line : 0,
		.source = "", .kind = OOM_SETTING_UNMODELLED,
		.note = "a comment or a blank behind a backslash ends the command before this line, for the shell: "
			"options from here on are read as if it did not"};

	if (cut)
		reading_add(p->reading, &s);
}

/* A script trains more than once: options of memory in which the other commands differ. */
void part_tell_others(struct fw_part *p)
{
	const struct doc_node *others = p->command ? NULL : doc_member(p->root, ARGS_OTHERS), *program = fw_key(p, ARGS_PROGRAM);
	const struct framework *const known[] = {p->fw, framework_find("launcher"), framework_find("accelerate")};
	const char *list = "";
	bool idle;

	tell_cut(p);
	for (const struct doc_node *c = others ? others->child : NULL; c; c = c->next) {
		if (!strcmp(c->key, ARGS_FILE))
			list = and_also(p, list, "its settings file");
		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
			const struct fw_row *row = known[i] ? framework_row(known[i], c->key, &idle) : NULL;

			if (row && !idle) {
				list = and_also(p, list, c->key);
				break;
			}
		}
	}
	if (*list && program && program->text)
		add_program(p, program, reading_text(p->reading, "this line is read; line %u trains as well, with other values of %.300s",
				others->line, list));
}

void part_tell(struct fw_part *p)
{
	const struct doc_node *program = fw_key(p, ARGS_PROGRAM), *rest = doc_member(p->root, ARGS_REST);

	tell_unknown(p);
	tell_covered(p);
	if (program && program->text && !part_fact(p, "@known-script")) {
		if (p->fw->own_scripts)
			tell_script(p, program);
		else if (p->fw->last_resort || (p->fw->commands && !is_its_own(p, program->text)))
			tell_stranger(p, program);
	}
	if (p->missing_config)
		open_defaults(p, reading_text(p->reading, "a default: what %.60s says is not known here", p->missing_config));
	if (rest)
		open_defaults(p, reading_text(p->reading, *rest->text == '$' ?
					      "a default: what %.60s adds to the line is known only when it runs" :
					      "a default: other arguments of the call are made elsewhere (**%.60s)",
					      rest->text));
}
