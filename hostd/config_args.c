/*
 * The command line of hutchd.
 *
 * The flags of the table in config.c, `--set KEY=VALUE` for every other key,
 * and what is about the run itself: --config, --help, --version, --routes.
 * --default-state is for `hutch serve`: its own default folder, which goes
 * under the file's state_dir as --state goes over it.
 */
#include "config.h"
#include <stdlib.h>
#include <string.h>

/* "--flag value" or "--flag=value": the value, or NULL when `arg` is another
 * flag; *i moves over a value that is an argument of its own. */
static const char *flag_value(const char *flag, int argc, char **argv, int *i)
{
	size_t len = strlen(flag);

	if (strncmp(argv[*i], flag, len))
		return NULL;
	if (argv[*i][len] == '=')
		return argv[*i] + len + 1;
	if (argv[*i][len] || *i + 1 >= argc)
		return NULL;
	return argv[++*i];
}

static int set_pair(struct config *c, const char *pair, struct err *e)
{
	const char *eq = strchr(pair, '=');
	char key[64];

	if (!eq || (size_t)(eq - pair) >= sizeof(key))
		return err_set(e, ERR_INVALID_REQUEST, NULL,
			       "--set: expected KEY=VALUE, found \"%s\"", pair);
	memcpy(key, pair, (size_t)(eq - pair));
	key[eq - pair] = 0;
	return config_set(c, key, eq + 1, "--set", e);
}

/* 1 = a flag of the table, 0 = not, -1 = refused. */
static int table_flag(struct config *c, int argc, char **argv, int *i,
		      struct err *e)
{
	const char *key, *flag;

	for (unsigned n = 0; (key = config_key(n)); n++) {
		const char *value;

		flag = config_flag(n);
		value = flag ? flag_value(flag, argc, argv, i) : NULL;
		if (value)
			return config_set(c, key, value, flag, e) ? -1 : 1;
	}
	return 0;
}

static int one_flag(struct config *c, int argc, char **argv, int *i,
		    struct err *e)
{
	const char *arg = argv[*i], *value;
	int rc;

	if (!strcmp(arg, "--foreground") ||
	    flag_value("--config", argc, argv, i) ||
	    flag_value("--default-state", argc, argv, i))
		return 0;
	value = flag_value("--set", argc, argv, i);
	if (value)
		return set_pair(c, value, e);
	rc = table_flag(c, argc, argv, i, e);
	if (rc)
		return rc < 0 ? -1 : 0;
	return err_set(e, ERR_INVALID_REQUEST, NULL,
		       "%s: unknown flag, or its value is missing "
		       "(hutchd --help lists them)",
		       arg);
}

int config_args(struct config *c, int argc, char **argv, const char **ret_what,
		struct err *e)
{
	static const char *const words[] = {"--help", "-h", "--version",
					    "--routes"};
	const char *file = NULL, *value;

	for (int i = 1; i < argc; i++) {
		for (size_t k = 0; k < sizeof(words) / sizeof(*words); k++) {
			if (strcmp(argv[i], words[k]))
				continue;
			*ret_what = words[k];
			return 1;
		}
		value = flag_value("--config", argc, argv, &i);
		if (value)
			file = value;
		value = flag_value("--default-state", argc, argv, &i);
		if (value &&
		    config_set(c, "state_dir", value, "--default-state", e))
			return -1;
	}
	if (config_read(c, file ? file : CONFIG_FILE_DEFAULT, !file, e))
		return -1;
	for (int i = 1; i < argc; i++)
		if (one_flag(c, argc, argv, &i, e))
			return -1;
	return 0;
}

void config_help(FILE *out)
{
	const char *key;

	fputs("hutchd: the hutch daemon; runs code in microVMs, serves HTTP.\n"
	      "\n"
	      "usage: hutchd [--config FILE] [FLAG VALUE] ...\n"
	      "\n"
	      "  --config FILE        settings, default " CONFIG_FILE_DEFAULT
	      " if it is there\n",
	      out);
	for (unsigned n = 0; (key = config_key(n)); n++)
		config_help_flag(n, out);
	fputs("  --default-state DIR  as --state, but the file's state_dir "
	      "goes "
	      "over it\n",
	      out);
	fputs("  --set KEY=VALUE      any key below\n"
	      "  --foreground         stay in the foreground: always so\n"
	      "  --routes             print the HTTP routes and end\n"
	      "  --version            print the version and end\n"
	      "\n"
	      "Keys of the file and of --set (hutchd.conf.example has them "
	      "all):\n",
	      out);
	for (unsigned n = 0; (key = config_key(n)); n++)
		config_help_key(n, out);
	fputs("\n"
	      "The port in use is printed and written to STATE/listen; "
	      "STATE/admin.sock takes\n"
	      "the calls of the hutch command.  SIGTERM drains and ends, a "
	      "second one ends at once.\n",
	      out);
}
