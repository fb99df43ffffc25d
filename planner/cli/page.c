/* A report on its way out: lines folded at words to the width of the terminal. */
#include "page.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "term.h"

bool oom_page_folds(void)
{
	const char *columns = getenv("COLUMNS");

	return oom_term_is_tty() || (columns && *columns);
}

void oom_page_begin(struct oom_page *page)
{
	page->text = NULL;
	/* asked now: standard output is another one until the end */
	(void)oom_term_color();
	(void)oom_term_width();
	if (!oom_page_folds())
		return;
	fflush(stdout);
	page->text = tmpfile();
	page->out = page->text ? dup(STDOUT_FILENO) : -1;
	if (page->out >= 0 && dup2(fileno(page->text), STDOUT_FILENO) >= 0)
		return;
	if (page->out >= 0)
		close(page->out);
	if (page->text)
		fclose(page->text);
	page->text = NULL;
}

void oom_page_end(struct oom_page *page)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	if (!page->text)
		return;
	fflush(stdout);
	dup2(page->out, STDOUT_FILENO);
	close(page->out);
	rewind(page->text);
	while ((n = getline(&line, &cap, page->text)) > 0) {
		if (line[n - 1] == '\n')
			line[n - 1] = 0;
		oom_fold_line(stdout, line, oom_term_width());
	}
	free(line);
	fclose(page->text);
}

/* What follows a character: of a colour's sequence its end, of UTF-8 the next first byte.  *columns grows
 * by what it takes on the screen. */
static const char *past(const char *at, int *columns)
{
	if (*at == '\033') {
		while (*at && *at != 'm')
			at++;
		return *at ? at + 1 : at;
	}
	++*columns;
	at++;
	while (((unsigned char)*at & 0xc0) == 0x80)
		at++;
	return at;
}

/* A blank between a number and its unit is no place to break. */
static bool holds_together(const char *blank)
{
	return isdigit((unsigned char)blank[-1]) && (isalpha((unsigned char)blank[1]) || blank[1] == '%');
}

/* The end of what fits in so many columns, at a blank; the end of the first word where none does. */
static const char *end_of_row(const char *from, int columns)
{
	const char *end = NULL, *at = from;
	bool word = false;
	int used = 0;

	while (*at) {
		if (*at == ' ' && word && !holds_together(at))
			end = used <= columns || !end ? at : end;
		if (used > columns && end)
			return end;
		word = *at != ' ';
		at = past(at, &used);
	}
	return used <= columns || !end ? at : end;
}

/* To be copied whole: a command, or its options alone. */
static bool is_command(const char *line)
{
	line += strspn(line, " ");
	return !strncmp(line, "oomplan ", 8) || !strncmp(line, "--", 2);
}

void oom_fold_line(FILE *out, const char *line, int width)
{
	const int indent = (int)strspn(line, " "), hang = indent + 2 < width / 2 ? indent + 2 : 2;
	const char *end = is_command(line) ? line + strlen(line) : end_of_row(line, width);

	fprintf(out, "%.*s\n", (int)(end - line), line);
	while (*(line = end + strspn(end, " "))) {
		end = end_of_row(line, width - hang);
		fprintf(out, "%*s%.*s\n", hang, "", (int)(end - line), line);
	}
}
