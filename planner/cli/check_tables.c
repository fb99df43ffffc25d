/* What the gate found, as tables for people and for CI. */
#include <string.h>

#include "check_tables.h"
#include "json.h"
#include "out.h"
#include "term.h"

static const char *word(const struct oom_check_row *r)
{
	return r->failed ? "ERROR" : r->fits ? "FITS" : "DOES NOT FIT";
}

void check_write_text(FILE *out, const struct oom_check *c, size_t fitting)
{
	for (size_t i = 0; i < c->n && !c->job->quiet; i++) {
		const struct oom_check_row *r = &c->row[i];
		char share[80] = "";

		if (!r->failed)
			oom_used_of(share, r->used_bytes, r->capacity_bytes);
		fprintf(out, "%-12s  %-20s  %s", word(r), share, oom_shown(r->name));
		fprintf(out, *r->text ? ": %s\n" : "\n", oom_shown(r->text));
	}
	fprintf(out, "%zu of %zu fit\n", fitting, c->n);
}

/* A cell of a Markdown table: what would end it is escaped, and so is what GitHub takes for HTML. */
static void md_cell(FILE *out, const char *s)
{
	fputs("| ", out);
	for (s = oom_shown(s); *s; s++)
		if (*s == '|' || *s == '\\' || *s == '`' || *s == '*' || *s == '_')
			fprintf(out, "\\%c", *s);
		else if (*s == '<')
			fputs("&lt;", out);
		else if (*s == '&')
			fputs("&amp;", out);
		else
			putc(*s, out);
	putc(' ', out);
}

static void md_table(FILE *out, const struct oom_check *c, size_t fitting)
{
	fprintf(out, "**oomplan**: %zu of %zu fit\n\n| set-up | verdict | used | capacity | |\n"
		     "|---|---|---:|---:|---|\n",
		fitting, c->n);
	for (size_t i = 0; i < c->n; i++) {
		const struct oom_check_row *r = &c->row[i];

		md_cell(out, r->name);
		fprintf(out, "| %s ", word(r));
		md_cell(out, r->failed ? "" : oom_gib(r->used_bytes));
		md_cell(out, r->failed ? "" : oom_gib(r->capacity_bytes));
		md_cell(out, r->text);
		fputs("|\n", out);
	}
}

/* Characters that XML 1.0 cannot hold at all become '?' (oom_shown); '<', '&' and quotes are escaped. */
static void xml(FILE *out, const char *s)
{
	for (s = oom_shown(s); *s; s++)
		switch (*s) {
		case '<': fputs("&lt;", out); break;
		case '>': fputs("&gt;", out); break;
		case '&': fputs("&amp;", out); break;
		case '"': fputs("&quot;", out); break;
		default: putc(*s, out);
		}
}

static void junit_table(FILE *out, const struct oom_check *c, size_t fitting)
{
	size_t errors = 0;

	for (size_t i = 0; i < c->n; i++)
		errors += c->row[i].failed;
	fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"oomplan\" "
		     "tests=\"%zu\" failures=\"%zu\" errors=\"%zu\">\n",
		c->n, c->n - fitting - errors, errors);
	for (size_t i = 0; i < c->n; i++) {
		const struct oom_check_row *r = &c->row[i];
		const char *tag = r->failed ? "error" : "failure";
		char share[80] = "";

		if (!r->failed)
			oom_used_of(share, r->used_bytes, r->capacity_bytes);
		fputs("<testcase classname=\"oomplan\" name=\"", out);
		xml(out, r->name);
		if (r->fits) {
			fprintf(out, "\"><system-out>%s", share);
			fprintf(out, "%s", *r->text ? "; " : "");
			xml(out, r->text);
			fputs("</system-out></testcase>\n", out);
			continue;
		}
		fprintf(out, "\"><%s message=\"%s%s%s", tag, word(r), *share ? ": " : "", share);
		fprintf(out, "%s", *r->text ? ": " : "");
		xml(out, r->text);
		fprintf(out, "\"></%s></testcase>\n", tag);
	}
	fputs("</testsuite>\n</testsuites>\n", out);
}

static void json_table(FILE *out, const struct oom_check *c, size_t fitting)
{
	struct oom_json j = {.out = out};

	oom_json_object(&j, NULL);
	oom_json_text(&j, "schema", "oomplan-check/1");
	oom_json_uint(&j, "fitting", fitting);
	oom_json_uint(&j, "rows", c->n);
	oom_json_array(&j, "setups");
	for (size_t i = 0; i < c->n; i++) {
		const struct oom_check_row *r = &c->row[i];

		oom_json_object(&j, NULL);
		oom_json_text(&j, "name", r->name);
		if (r->failed) {
			oom_json_null(&j, "fits");
		} else {
			oom_json_bool(&j, "fits", r->fits);
			oom_json_uint(&j, "used_bytes", r->used_bytes);
			oom_json_uint(&j, "capacity_bytes", r->capacity_bytes);
		}
		oom_json_text(&j, "text", r->text);
		oom_json_end(&j);
	}
	oom_json_end(&j);
	oom_json_end(&j);
}

static const struct check_format formats[] = {{"md", md_table}, {"junit", junit_table}, {"json", json_table}, {"text", check_write_text}};
enum { FORMATS = sizeof(formats) / sizeof(formats[0]) };

const struct check_format *check_format(const char *spelt, const char **file)
{
	const char *colon = strchr(spelt, ':');
	const size_t n = colon ? (size_t)(colon - spelt) : strlen(spelt);

	*file = colon ? colon + 1 : NULL;
	for (size_t i = 0; i < FORMATS; i++)
		if (strlen(formats[i].name) == n && !strncmp(spelt, formats[i].name, n))
			return &formats[i];
	return NULL;
}

int check_write(const struct check_format *f, const char *file, const struct oom_check *c, size_t fitting)
{
	struct oom_error err = {{0}};
	struct oom_out out;

	if (oom_out_open(&out, file, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	f->write(out.file, c, fitting);
	return oom_out_close(&out, &err) ? oom_complain(OOM_EXIT_INPUT, "%s", err.text) : 0;
}
