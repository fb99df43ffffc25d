/* What a training script takes where its command says nothing: the options that it declares, and literal arguments
 * of the calls that load the model and make the trainer, if the script lies beside the command.
 *
 * They become members of the command, as if it had them: whatever a framework makes of a key holds for a script's own
 * default too.  No import is followed. */
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "input/config_json.h"
#include "parts.h"

enum { PATH = 512 };

/* "train.py", or the module "training.train" of "python -m"; false: no script's name. */
static bool script_path(const char *program, char *buf, size_t size)
{
	const size_t n = strlen(program);

	if (!n || n + 4 >= size || strchr(program, ' ') || *program == '$')
		return false;
	memcpy(buf, program, n + 1);
	if (n > 3 && !strcmp(program + n - 3, ".py"))
		return true;
	if (strchr(program, '/') || !strchr(program, '.'))
		return false;
	for (char *c = buf; *c; c++)
		*c = *c == '.' ? '/' : *c;
	memcpy(buf + n, ".py", 4);
	return true;
}

/* Do the command or the file that it names say the knob with this key or another one? */
static bool said(const struct fw_part *p, const struct fw_row *row)
{
	bool idle;

	if (p->command && said(p->command, row))
		return true;
	for (const struct doc_node *c = p->root->child; c && row->knob; c = c->next) {
		const struct fw_row *other = c->tag && !strcmp(c->tag, ARGS_OF_SCRIPT) ? NULL :
					     framework_row(p->fw, c->key, &idle);

		if (other && other->knob && !strcmp(other->knob, row->knob))
			return true;
	}
	return false;
}

/* Is it a switch for adapters: "use_lora", "qlora"? */
static bool is_switch(const struct fw_row *row)
{
	return row && row->knob && row->map &&
	       ((!strcmp(row->knob, "method") && strstr(row->map, "true>lora")) || strstr(row->map, "method=lora"));
}

static bool is_of_adapters(const struct fw_row *row)
{
	return row->knob && (!strncmp(row->knob, "lora", 4) || !strcmp(row->knob, "modules-to-save"));
}

/* Adapters that the script makes behind a switch which is off and which the command leaves there are never made. */
static bool adapters_are_off(const struct fw_part *p, const struct doc_node *options)
{
	bool idle, has_switch = false;

	for (const struct doc_node *o = options ? options->child : NULL; o; o = o->next)
		has_switch |= is_switch(framework_row(p->fw, o->key, &idle)) && doc_is_off(o);
	for (const struct fw_part *at = p; at && has_switch; at = at->command)
		for (const struct doc_node *c = at->root->child; c; c = c->next) {
			const struct fw_row *row = framework_row(p->fw, c->key, &idle);

			if (row && row->knob && !doc_is_off(c) && (is_switch(row) || is_of_adapters(row)))
				return false;
		}
	return has_switch;
}

static void add(struct fw_part *p, const char *key, const struct doc_node *value)
{
	struct doc_node *copy;
	bool idle;
	const struct fw_row *row = framework_row(p->fw, key, &idle);

	/* what no row stands for says nothing; a member that is there is the command's word */
	if (!row || idle || (p->no_adapters && (is_of_adapters(row) || !strcmp(key, "@kbit-prepare"))) || value->kind == DOC_MAP || doc_is_null(value) || value->tag || doc_below(p->root, key) ||
	    (p->command && doc_below(p->command->root, key)) ||
	    /* "lora" off beside another switch that means adapters too */
	    (row->knob && !strcmp(row->knob, "method") && doc_is_off(value)) ||
	    said(p, row) || (value->kind == DOC_SCALAR && (!*value->text || strchr(value->text, '('))))
		return;
	copy = doc_add_copy(&p->doc, p->doc.root, key, value);
	if (copy)
		copy->tag = ARGS_OF_SCRIPT;
	p->reading->out_of_memory |= !copy;
}

/* "AutoModelForCausalLM", "LlamaForCausalLM"; not a tokenizer's class. */
static bool is_model(const char *name)
{
	return strstr(name, "Model") || strstr(name, "ForCausalLM") || strstr(name, "ForConditionalGeneration");
}

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* Literal arguments of calls, under the names that options have. */
static void add_calls(struct fw_part *p, const struct doc_node *root)
{
	static const struct {
		const char *call, *argument, *key;
	} known[] = {
		{"LoraConfig", "r", "lora_r"}, {"LoraConfig", "lora_dropout", "lora_dropout"},
		{"LoraConfig", "target_modules", "target_modules"}, {"LoraConfig", "modules_to_save", "modules_to_save"},
		{"from_pretrained", "torch_dtype", "torch_dtype"}, {"from_pretrained", "dtype", "torch_dtype"},
		{"from_pretrained", "attn_implementation", "attn_implementation"},
		{"from_pretrained", "device_map", "device_map"},
	};
	static const char *const own[] = {"gradient_checkpointing", "bf16", "fp16", "optim", "max_length", "max_seq_length",
					  "per_device_train_batch_size", "gradient_accumulation_steps"};

	for (const struct doc_node *c = root->child; c; c = c->next) {
		const char *objective = python_trainer_objective(c->key);
		struct doc_node *trainer = objective && !doc_member(p->root, "@objective") ?
					   doc_add_text(&p->doc, p->doc.root, "@objective", objective, 0, 0) : NULL;
		const struct doc_node *load = is_model(c->key) ? doc_member(c, "from_pretrained") : NULL;

		if (trainer)
			trainer->tag = ARGS_OF_SCRIPT;
		if (!p->own_trainer && python_own_trainer(c->key))
			p->own_trainer = reading_text(p->reading, "%s", c->key);
		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
			const struct doc_node *call = !strcmp(c->key, known[i].call) ? c :
						      load && !strcmp(known[i].call, "from_pretrained") ? load : NULL;
			const struct doc_node *value = call ? doc_member(call, known[i].argument) : NULL;

			if (value)
				add(p, known[i].key, value);
		}
		if (!strcmp(c->key, "prepare_model_for_kbit_training") && !doc_member(p->root, "@kbit-prepare")) {
			struct doc_node *call = doc_add_text(&p->doc, p->doc.root, "@kbit-prepare", "true", 0, 0);

			if (call)
				call->tag = ARGS_OF_SCRIPT;
		}
		for (size_t i = 0; i < sizeof(own) / sizeof(own[0]) && c->kind == DOC_MAP; i++)
			if ((ends_with(c->key, "TrainingArguments") || ends_with(c->key, "SFTConfig")) &&
			    doc_member(c, own[i]))
				add(p, own[i], doc_member(c, own[i]));
		/* a trainer of pairs by its loss: another objective's */
		if ((ends_with(c->key, "DPOConfig") || ends_with(c->key, "CPOConfig")) && doc_member(c, "loss_type"))
			add(p, "loss_type", doc_member(c, "loss_type"));
	}
}

/* The script that a command starts beside it; false: it is not at hand. */
static bool find_script(const struct fw_part *command, char path[PATH], char found[PATH])
{
	const struct doc_node *program = doc_member(command->root, ARGS_PROGRAM);

	return command->doc.format && !strcmp(command->doc.format, ARGS_FORMAT) && program && program->text &&
	       script_path(program->text, path, PATH) && part_find_beside(found, PATH, command->file, path);
}

/* A command that no framework knows: its script may make a trainer with arguments that are read there. */
void part_follow_script(struct fw_part *command)
{
	struct oom_error err = {{0}};
	char path[PATH], found[PATH], *text = NULL;
	struct oom_reading *r = command->reading;
	struct fw_part *c = NULL;
	enum oom_status st;
	size_t size = 0;

	if (!find_script(command, path, found) || r->n_parts == FW_MAX_PARTS)
		return;
	st = oom_read_text(&text, &size, found, DOC_MAX_BYTES, &err);
	if (!st && !(c = part_new(r)))
		st = OOM_ERR_MEMORY;
	if (!st)
		st = doc_read_python_as(&c->doc, text, size, reading_text(r, "%s", found), false, command->root, &err);
	if (!st)
		st = part_recognise(c, NULL, &c, &err);
	if (!st) {
		command->fw = framework_find("launcher");
		part_run(c);
	} else {
		part_drop(r, c, st);
	}
	free(text);
}

void part_take_script(struct fw_part *command)
{
	const struct doc_node *options;
	/* the file of settings that it names stands above the script's defaults */
	struct fw_part *p = command->config ? command->config : command;
	struct oom_error err = {{0}};
	char path[PATH], found[PATH], *text = NULL;
	struct doc doc;
	size_t size = 0;
	enum oom_status st;

	if (p->fw->role != FW_TRAINER || p->root->kind != DOC_MAP || p->root != p->doc.root ||
	    !find_script(command, path, found))
		return;
	st = oom_read_text(&text, &size, found, DOC_MAX_BYTES, &err);
	if (!st)
		st = doc_read_python_as(&doc, text, size, found, true, NULL, &err);
	p->reading->out_of_memory |= st == OOM_ERR_MEMORY;
	if (!st) {
		p->script = reading_text(p->reading, "%s", path);
		options = doc_member(doc.root, ARGS_OPTIONS);
		p->no_adapters = adapters_are_off(p, options);
		for (const struct doc_node *o = options ? options->child : NULL; o; o = o->next)
			add(p, o->key, o);
		add_calls(p, doc.root);
		doc_release(&doc);
	}
	free(text);
}
