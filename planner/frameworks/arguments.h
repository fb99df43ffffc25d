/* Command lines and scripts as trees, and values written inside a text.  Private to planner/.
 *
 * The root holds the options of the program that trains, "--key v" as key: v, "a.b=c" as "a.b": c,
 * several values as a list.  What stands around the program is in members whose names no option
 * has. */
#ifndef OOM_FRAMEWORKS_ARGUMENTS_H
#define OOM_FRAMEWORKS_ARGUMENTS_H

#include "doc.h"

/* A map: options of torchrun, accelerate launch, srun, ... without dashes; "name": the last of
 * those; and variables that the script sets, as "NAME=". */
#define ARGS_LAUNCHER "(launcher)"
/* The program and, of those that have them, its command: "train.py", "swift sft". */
#define ARGS_PROGRAM "(program)"
/* A list: words of the program that belong to no option. */
#define ARGS_WORDS "(words)"
/* A map from names to texts: files that a script writes before. */
#define ARGS_FILES "(files)"
/* A map: versions that the script installs before, "transformers==": "4.45.2". */
#define ARGS_PINS "(pip)"
/* The tag of a value that holds what is known only when the script runs: "$1". */
#define ARGS_UNKNOWN "unknown"
/* The tag of a value that is the default of an option or a parameter of the script itself: it holds unless
 * who runs the script says otherwise. */
#define ARGS_OPTION "option"
/* A key of a call whose further arguments are made elsewhere ("**kwargs"). */
#define ARGS_REST "**"

/* The line from which on a command's options stand behind a comment, which ends it for the shell. */
#define ARGS_CUT "(cut)"

/* A map: options in which other commands of a script that train differ from the one that is read, and ARGS_FILE for
 * another settings file; its line is that of the first of them. */
#define ARGS_OTHERS "(others)"
#define ARGS_FILE "(file)"

/* A map: options that a script of Python declares, and their defaults. */
#define ARGS_OPTIONS "(options)"
/* The tag of an option that a command does not have and whose default its script gives. */
#define ARGS_OF_SCRIPT "script"

/* Of a registry's run: what a section is made by; a map of all runs by their names; and the name of the one that was taken,
 * where there are several and none was named. */
#define REGISTRY_CLASS "(class)"
#define REGISTRY_RUNS "(runs)"
#define REGISTRY_RUN "(run)"

/* The formats of such documents. */
#define ARGS_FORMAT "arguments"
#define PYTHON_FORMAT "python"

/* "train.py", "train.ipynb" */
bool args_is_script(const char *word);

struct args_word {
	const char *text;
	bool unknown;
	uint32_t line;
};

/* A command line, launchers in front and all; without an error where it is empty. */
enum oom_status doc_read_words(struct doc *doc, const struct args_word *words, size_t n,
			       const char *file, struct oom_error *err);
/* A shell script: its launch line, that is the command with the most options among those that start
 * a program of Python or a known trainer.  OOM_ERR_UNKNOWN: there is none. */
enum oom_status doc_read_shell(struct doc *doc, const char *text, size_t size, const char *file,
			       struct oom_error *err);
/* A Python script (or a notebook's code): literal keyword arguments of calls to classes and to
 * functions that load models, as "SFTConfig": {key: value}, "FastModel": {"from_pretrained": ...};
 * of several calls of one name the first.  No more than that: nothing is run. */
enum oom_status doc_read_python(struct doc *doc, const char *text, size_t size, const char *file,
				struct oom_error *err);
/* The same, and the options that the script declares (fields of dataclasses, add_argument) with the defaults that it
 * gives them, as a map ARGS_OPTIONS, if these are asked for.  given: the options of the command that starts it, which
 * stand above these defaults; NULL: none. */
enum oom_status doc_read_python_as(struct doc *doc, const char *text, size_t size, const char *file, bool options,
				   const struct doc_node *given, struct oom_error *err);
/* python_registry.c: a module of functions that return the config of one run each, as torchtitan's config_registry.py: the
 * sections of the run that FILE.py:NAME names, or else of one that is no debug model's. */
enum oom_status doc_read_registry(struct doc *doc, const char *text, size_t size, const char *file,
				  struct oom_error *err);
bool python_is_registry(const char *text);
/* Of pairs that were taken out of one: sections in place of calls; nothing where they are of another script. */
bool doc_pairs_to_sections(struct doc *doc);
/* NAME of "FILE.py:NAME"; NULL: none is named. */
const char *python_run_of(const char *path);
/* A Jupyter notebook: its cells of code as one script of Python. */
enum oom_status doc_read_notebook(struct doc *doc, const char *text, size_t size, const char *file,
				  struct oom_error *err);
/* Lines "KEY<tab>VALUE" of options ("--key"), assignments ("NAME=") and keyword arguments
 * ("SFTConfig(key)") that were taken out of a script. */
enum oom_status doc_read_pairs(struct doc *doc, const char *text, size_t size, const char *file,
			       struct oom_error *err);
enum oom_status doc_read_toml(struct doc *doc, const char *text, size_t size, const char *file,
			      struct oom_error *err);

/* Versions that files beside a run install: a requirement on each line; RUN lines of a Dockerfile. */
enum oom_status doc_read_requirements(struct doc *doc, const char *text, size_t size, const char *file,
				      struct oom_error *err);
enum oom_status doc_read_dockerfile(struct doc *doc, const char *text, size_t size, const char *file,
				    struct oom_error *err);

/* For these doors.  A child of `parent` made of a value as options and Python spell it: [a, "b"],
 * {"k": v}, 'text', text.  NULL: full. */
struct doc_node *doc_add_value(struct doc *doc, struct doc_node *parent, const char *key,
			       const char *text, uint32_t line);
/* A copy of a node, of any document, below `parent`. */
struct doc_node *doc_add_copy(struct doc *doc, struct doc_node *parent, const char *key,
			      const struct doc_node *node);
/* What the words of a command say into an existing root; n_options: how many options there were. */
bool args_command(struct doc *doc, struct doc_node *root, const struct args_word *words, size_t n,
		  size_t *n_options);
/* pins.c: the exact versions of a "pip install" command, or of a line of a notebook ("pip install
 * ...", quotes and all); nothing where it is none.  false: full. */
bool args_installs(const struct args_word *words, size_t n);
bool args_pins(struct doc *doc, struct doc_node *root, const struct args_word *words, size_t n);
bool args_pins_of_line(struct doc *doc, struct doc_node *root, const char *text, size_t size,
		       uint32_t line);
/* script.c: a script that is called with words. */
enum oom_status doc_read_shell_called(struct doc *doc, const char *text, size_t size, const char *file,
				      const char *const *words, size_t n_words, struct oom_error *err);
/* Whether a command begins with something that starts a training program. */
/* called_script.c: a shell script's name; a command that runs one ("bash train.sh", "./train.sh"). */
bool args_is_shell_script(const char *word);
bool args_calls_script(const struct args_word *words, size_t n);
bool args_is_launch(const struct args_word *words, size_t n);
/* Whether it is a framework's own command that trains: "swift sft". */
bool args_is_trainer(const struct args_word *words, size_t n);

#endif
