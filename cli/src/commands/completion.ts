/** `sluice completion`: prints the script that bash or zsh must read once to complete commands. */
import type { Command, Input } from "../command.ts"
import { Failure } from "../failure.ts"

/** Prints the script. Both shells complete from one list of words for each beginning of a command line. */
export async function run({ args, out, table: commands }: Input): Promise<void> {
  const [shell = ""] = args
  if (shell !== "bash" && shell !== "zsh") throw new Failure("The completion is for bash or zsh.", 2)
  const words = wordsOf("", { does: "", commands })
  const cases = words.map(([path, next]) => `    "${path}") words="${next.join(" ")}" ;;`).join("\n")
  const script = `${shell === "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : ""}_sluice() {
  local path="" words="" word i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    case "$word" in -*) ;; *) [ "\${#path}" -gt 0 ] && path="$path $word" || path="$word" ;; esac
  done
  case "$path" in
${cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -F _sluice sluice`
  out.show(out.isJson ? { script } : script)
}

function wordsOf(path: string, { commands = {}, options = [], among = [] }: Command): [string, string[]][] {
  const flags = options.flatMap(([flags]) => /--[\w-]+/.exec(flags)?.[0] ?? [])
  const words = [...Object.keys(commands), ...among, ...flags, "--json", "--help"]
  const children = Object.entries(commands).flatMap(([name, each]) =>
    wordsOf(path === "" ? name : `${path} ${name}`, each),
  )
  return [[path, words], ...children]
}
