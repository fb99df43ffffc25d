/* Completion scripts for bash, zsh and fish: options, their words, commands and their words.
 *
 * Each shell's script is written by a file of its own, of pieces that all of them have: words divided by blanks, on standard
 * output. */
#ifndef OOM_CLI_COMPLETION_H
#define OOM_CLI_COMPLETION_H

#include "view.h"

void completion_bash(void);
void completion_zsh(void);
void completion_fish(void);

/* Escapes the characters of `special` by a backslash and single quotes as `quote`; for text between
 * single quotes. */
void completion_quoted(const char *s, const char *special, const char *quote);
/* The names of bundled models. */
void completion_models(void);
/* The words that a value can be, and whether it can be a file. */
void completion_words(const struct oom_view *v);
bool completion_takes_files(const struct oom_view *v);
/* The words that a command takes (`list models`). */
struct oom_command;
void completion_command_words(const struct oom_command *c);
/* The names of all commands, with this text between them. */
void completion_commands(const char *between, bool skip_default);

#endif
