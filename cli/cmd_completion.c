/* danaus completion: scripts by which bash and zsh complete command lines, from the tables
   of options. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"

static const usage use = {
    .synopsis = "bash|zsh",
    .about =
        "Prints a script that completes commands, options and their values in the\n"
        "shell:\n\n"
        "  danaus completion bash > ~/.local/share/bash-completion/completions/danaus\n"
        "  danaus completion zsh > FOLDER/_danaus     a FOLDER of zsh's fpath\n",
    .number = { 1, 1 },
    .operands = "bash or zsh",
    .words = "bash|zsh",
};

static const char *looked_at; /* the command whose table comes */

/* Makes every command hand its table to `look`. */
static void look_at_all(void (*look)(const usage *use, const arg *table))
{
    args_look = look;
    for (const command *c = danaus_commands; c->name; c++) {
        char name[] = "danaus", *words[] = { name, NULL };
        looked_at = c->name;
        c->run(1, words);
    }
    args_look = NULL;
}

/* "first|last" with blanks between. */
static void print_words(const char *words)
{
    for (; *words; words++)
        putchar(*words == '|' ? ' ' : *words);
}

static void print_commands(void)
{
    for (const command *c = danaus_commands; c->name; c++)
        printf("%s ", c->name);
}

static void print_dtypes(void)
{
    for (int i = 1; danaus_dtype_size((danaus_dtype)i); i++)
        printf("%s%s", i > 1 ? " " : "", danaus_dtype_name((danaus_dtype)i));
}

/* ---- bash: a case a command for its options, a case an option for its values ---- */

static void print_bash_options(const usage *u, const arg *table)
{
    printf("    %s) words=\"", looked_at);
    for (const arg *a = table; a->name; a++)
        printf("--%s ", a->name);
    printf("--help\"; operands=\"");
    print_words(u->words ? u->words : "");
    printf("\" ;;\n");
}

static void print_bash_values(const usage *u, const arg *table)
{
    (void)u;
    for (const arg *a = table; a->name; a++) {
        if (a->kind == ARG_FLAG)
            continue;
        printf("    \"%s --%s\"", looked_at, a->name);
        if (a->letter)
            printf("|\"%s -%c\"", looked_at, a->letter);
        printf(") words=\"");
        if (a->kind == ARG_WORD)
            print_words(a->takes);
        else if (a->kind == ARG_DTYPE)
            print_dtypes();
        printf("\" ;;\n");
    }
}

static void print_bash(void)
{
    printf(
        "# bash completion of danaus, by `danaus completion bash`\n"
        "_danaus()\n{\n"
        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
        "    local command=${COMP_WORDS[1]} words= operands=\n"
        "    if [ \"$COMP_CWORD\" -eq 1 ] || [ \"$command\" = help ]; then\n"
        "        COMPREPLY=($(compgen -W \"");
    print_commands();
    printf("help --help --version\" -- \"$word\"))\n        return\n    fi\n"
           "    case $command in\n");
    look_at_all(print_bash_options);
    printf("    esac\n"
           "    case $word in -*) ;; *) words=$operands ;; esac\n"
           "    case \"$command $before\" in\n");
    look_at_all(print_bash_values);
    printf("    esac\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
           "}\n"
           "complete -o bashdefault -o default -F _danaus danaus\n");
}

/* ---- zsh: the arguments of _arguments for every command ---- */

/* Inside '...[here]' of _arguments, on one line. */
static void print_zsh_text(const char *text)
{
    for (; *text; text++)
        if (*text == '\'')
            printf("'\\''");
        else if (strchr("[]:\\", *text))
            printf("\\%c", *text);
        else
            putchar(*text == '\n' ? ' ' : *text);
}

static void print_zsh_value(const arg *a)
{
    if (a->kind == ARG_FLAG)
        return;
    putchar(':');
    print_zsh_text(a->kind == ARG_WORD ? "word" : a->takes);
    putchar(':');
    if (a->kind == ARG_INPUT || a->kind == ARG_OUTPUT)
        printf("_files");
    if (a->kind == ARG_WORD || a->kind == ARG_DTYPE) {
        putchar('(');
        if (a->kind == ARG_WORD)
            print_words(a->takes);
        else
            print_dtypes();
        putchar(')');
    }
}

static void print_zsh_command(const usage *u, const arg *table)
{
    printf("    (%s) _arguments ", looked_at);
    for (const arg *a = table; a->name; a++) {
        if (a->letter)
            printf(
                "\\\n        '(-%c --%s)'{-%c,--%s}'[", a->letter, a->name, a->letter,
                a->name);
        else
            printf("\\\n        '--%s[", a->name);
        print_zsh_text(a->help);
        putchar(']');
        print_zsh_value(a);
        putchar('\'');
    }
    printf(" \\\n        '(-h --help)'{-h,--help}'[print help]'");
    if (u->words) {
        printf(" \\\n        '1:what:(");
        print_words(u->words);
        printf(")'");
    }
    if (u->number[1])
        printf(" \\\n        '*:file:_files'");
    printf(" ;;\n");
}

static void print_zsh(void)
{
    printf("#compdef danaus\n# zsh completion of danaus, by `danaus completion zsh`\n"
           "_danaus()\n{\n    local -a commands=(\n");
    for (const command *c = danaus_commands; c->name; c++) {
        printf("        '%s:", c->name);
        print_zsh_text(c->help);
        printf("'\n");
    }
    printf("        'help:about a command')\n"
           "    if (( CURRENT == 2 )) || [[ $words[2] == help ]]; then\n"
           "        _describe command commands\n        return\n    fi\n"
           "    shift words\n    (( CURRENT-- ))\n    case $words[1] in\n");
    look_at_all(print_zsh_command);
    printf("    esac\n}\n_danaus \"$@\"\n");
}

int cmd_completion(int argc, char **argv)
{
    static const arg table[] = { { 0 } };
    int operands;
    TRY(args_parse(&use, table, argc, argv, &operands));
    if (!strcmp(argv[1], "bash"))
        print_bash();
    else if (!strcmp(argv[1], "zsh"))
        print_zsh();
    else
        return usage_error(
            "there is no completion for \"%s\", only bash and zsh", argv[1]);
    return STATUS_OK;
}
