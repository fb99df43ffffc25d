/* TOML behind a door: the only file that knows the library, and the only one of C++.
 *
 * toml++ is asked to throw nothing (it supports that); the one exception is C++'s own, where memory is out.  What
 * it allocates is in proportion to a text that is bounded, and it bounds how deep values nest
 * (TOML_MAX_NESTED_VALUES). */
/* Its assertions are left out, and NDEBUG, which makes promises to the compiler of them: 3.3.0 asserts that the name of a
 * table begins with a letter or a quote before it looks ("[" and a line's end), which ends the program, and a text is
 * refused where it looks (parser.inl, parse_key). */
#undef NDEBUG
#define TOML_ASSERT(expr) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_MAX_NESTED_VALUES 60
#include <toml++/toml.h>

#include <cmath>
#include <cstdio>
#include <new>
#include <string>

extern "C" {
#include "toml_door.h"
}

namespace {

/* Hands nodes over in the order of the file: of a table by where its keys stand. */
bool give(const toml_sink *to, void *parent, const char *key, const toml::node &node, int depth);

bool give_text(const toml_sink *to, void *parent, const char *key, const toml::node &node,
	       const char *text, bool quoted)
{
	const auto at = node.source().begin;

	return to->text(to->data, parent, key, text, quoted, at.line, at.column) != nullptr;
}

bool give_table(const toml_sink *to, void *map, const toml::table &table, int depth)
{
	for (auto &&[key, value] : table) {
		const std::string name(key.str());

		if (name.find('\0') != std::string::npos || !give(to, map, name.c_str(), value, depth))
			return false;
	}
	return true;
}

bool give(const toml_sink *to, void *parent, const char *key, const toml::node &node, int depth)
{
	const auto at = node.source().begin;
	char text[64];

	if (depth > TOML_DOOR_DEPTH)
		return false;
	if (const auto *table = node.as_table()) {
		void *map = to->open(to->data, parent, key, true, at.line, at.column);

		return map && give_table(to, map, *table, depth + 1);
	}
	if (const auto *array = node.as_array()) {
		void *list = to->open(to->data, parent, key, false, at.line, at.column);

		if (!list)
			return false;
		for (auto &&value : *array)
			if (!give(to, list, nullptr, value, depth + 1))
				return false;
		return true;
	}
	if (const auto *s = node.as_string()) {
		/* a zero byte ends the text here: no setting has one */
		return give_text(to, parent, key, node, s->get().c_str(), true);
	}
	if (const auto *i = node.as_integer()) {
		std::snprintf(text, sizeof(text), "%lld", static_cast<long long>(i->get()));
		return give_text(to, parent, key, node, text, false);
	}
	if (const auto *f = node.as_floating_point()) {
		std::snprintf(text, sizeof(text), "%.17g", f->get());
		for (char *p = text; *p; p++)   /* whatever the locale */
			if (*p == ',')
				*p = '.';
		return give_text(to, parent, key, node, text, false);
	}
	if (const auto *b = node.as_boolean())
		return give_text(to, parent, key, node, b->get() ? "true" : "false", false);
	return give_text(to, parent, key, node, "a date", true);
}

int parse(const char *text, size_t size, const toml_sink *to, toml_failure *failure)
{
	const toml::parse_result result = toml::parse(std::string_view(text, size));

	if (!result) {
		const toml::parse_error &e = result.error();

		std::snprintf(failure->text, sizeof(failure->text), "%.*s",
			      static_cast<int>(e.description().size()), e.description().data());
		failure->line = e.source().begin.line;
		failure->column = e.source().begin.column;
		return 1;
	}
	return give_table(to, to->root, result.table(), 0) ? 0 : 2;
}

} // namespace

extern "C" int oom_toml_parse(const char *text, size_t size, const toml_sink *to,
			      toml_failure *failure)
{
	try {
		return parse(text, size, to, failure);
	} catch (const std::bad_alloc &) {
		return 2;
	}
}
