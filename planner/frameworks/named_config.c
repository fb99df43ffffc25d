/* The file of settings that a command names: "train.py recipe.yaml", "tune run R --config c.yaml batch_size=2".
 *
 * It is the run's file, whose defaults and hooks count; what the command says beside it stands above it, as far
 * as single keys go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "parts.h"

enum { PATH = 512 };

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);

	return n > m && !strcmp(s + n - m, end);
}

static bool is_settings(const char *word)
{
	return ends_with(word, ".yaml") || ends_with(word, ".yml") || ends_with(word, ".toml") || ends_with(word, ".json");
}

/* Options by which programs take such a file: axolotl, torchtune, litgpt, torchtitan, TRL, hydra. */
static const char *const options[] = {"config", "config_file", "job.config_file", "config_path", "yaml", "recipe", NULL};

static const char *text_of(const struct doc_node *node)
{
	return node && node->kind == DOC_SCALAR ? node->text : "";
}

/* hydra's --config-path and --config-name; false: they are not there. */
static bool hydra(const struct doc_node *root, char *buf, size_t size)
{
	const char *dir = text_of(doc_member(root, "config_path")), *name = text_of(doc_member(root, "config_name"));

	if (!*name)
		return false;
	snprintf(buf, size, "%s%s%s%s", dir, *dir ? "/" : "", name, ends_with(name, ".yaml") ? "" : ".yaml");
	return true;
}

/* torchtitan's --module and --config: a function of the module's registry (torchtitan/config/manager.py _load_config). */
static bool registry(const struct doc_node *root, size_t *k, char *buf, size_t size)
{
	static const char *const folders[] = {"torchtitan/models/", "torchtitan/experiments/", "torchtitan/experiments/rl/examples/", ""};
	const char *module = text_of(doc_member(root, "module")), *run = text_of(doc_member(root, "config"));

	if (!*module || !*run || strlen(module) > 200)
		return false;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		const int n = snprintf(buf, size, "%s", folders[i]);

		if ((*k)--)
			continue;
		snprintf(buf + n, size - (size_t)n, "%s/config_registry.py:%s", module, run);
		for (char *c = buf + n; c < buf + (size_t)n + strlen(module); c++)
			*c = *c == '.' ? '/' : *c;
		return true;
	}
	return false;
}

/* The k-th file that the command names; false past the last. */
static bool candidate(const struct doc_node *root, size_t k, char *buf, size_t size)
{
	const struct doc_node *words = doc_member(root, ARGS_WORDS), *env = doc_member(root, ARGS_LAUNCHER);

	for (const struct doc_node *w = words ? words->child : NULL; w; w = w->next)
		if (is_settings(w->text) && !k--) {
			snprintf(buf, size, "%s", w->text);
			return true;
		}
	for (size_t i = 0; options[i]; i++)
		if (is_settings(text_of(doc_member(root, options[i]))) && !k--) {
			snprintf(buf, size, "%s", doc_member(root, options[i])->text);
			return true;
		}
	if (is_settings(text_of(doc_member(env, "CONFIG_FILE="))) && !k--) {
		snprintf(buf, size, "%s", doc_member(env, "CONFIG_FILE=")->text);
		return true;
	}
	if (hydra(root, buf, size))
		return !k;
	if (registry(root, &k, buf, size))
		return true;
	/* a name that the program's own package knows: "--config llama3_1/8B_lora" */
	if (!k && *text_of(doc_member(root, "config")) && !is_settings(text_of(doc_member(root, "config")))) {
		snprintf(buf, size, "%s.yaml", doc_member(root, "config")->text);
		return true;
	}
	return false;
}

/* Written by the script itself, or lying beside it. */
static struct fw_part *read_it(struct fw_part *p, const char *name, struct oom_error *err)
{
	const struct doc_node *text = doc_member(doc_member(p->root, ARGS_FILES), name);
	struct oom_reading *r = p->reading;
	const char *run = python_run_of(name);
	char found[PATH], file[PATH];
	struct fw_part *c;
	enum oom_status st;

	snprintf(file, sizeof(file), "%.*s", (int)(run ? (size_t)(run - name) - 1 : strlen(name)), name);
	if ((!text && !part_find_beside(found, sizeof(found), p->file, file)) || r->n_parts == FW_MAX_PARTS)
		return NULL;
	if (run && strlen(found) + strlen(run) + 1 < sizeof(found)) {
		strcat(found, ":");
		strcat(found, run);
	}
	for (size_t i = 0; !text && i < r->n_parts; i++)
		if (r->parts[i]->file && !strcmp(r->parts[i]->file, found))
			return NULL;
	c = part_new(r);
	if (!c)
		return NULL;
	st = text ? doc_read_text(&c->doc, text->text, strlen(text->text), name, err) : doc_read(&c->doc, found, err);
	if (!st)
		st = part_recognise(c, NULL, &c, err);
	if (!st && c->fw->role == FW_TRAINER)
		return c;
	part_drop(r, c, st);
	return NULL;
}

void part_take_config(struct fw_part *p)
{
	struct oom_error err = {{0}};
	char name[PATH], first[PATH] = "";

	if (!p->doc.format || strcmp(p->doc.format, ARGS_FORMAT) || !p->root || p->root->kind != DOC_MAP)
		return;
	for (size_t k = 0; k < 8 && candidate(p->root, k, name, sizeof(name)); k++) {
		p->config = read_it(p, name, &err);
		if (p->config) {
			p->config->command = p;
			p->fw = p->config->fw;
			return;
		}
		if (!*first && (!p->fw || !ends_with(name, ".json")))
			snprintf(first, sizeof(first), "%s", name);
	}
	if (*first)
		p->missing_config = reading_text(p->reading, "%s", first);
	/* how it is launched is known all the same */
	if (*first && !p->fw)
		p->fw = framework_find("launcher");
}

void part_run_config(struct fw_part *p)
{
	if (p->config) {
		part_run(p->config);
	} else if (p->missing_config) {
		const struct oom_setting s = {
			.key = "config", .value = p->missing_config, .knob = "", .knob_value = "", .file = p->file,
			.source = "", .kind = OOM_SETTING_UNMODELLED,
			.note = "the file of settings that the command names was not read here (not found, or given "
				"beside it): what it says is missing unless that file is given too"};

		reading_add(p->reading, &s);
	}
}
