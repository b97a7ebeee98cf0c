#include "engine/app/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "engine/config/field.h"

namespace sluice::app {
namespace {

/// What both shells read: whether a path of verbs (" config show") is one, what may follow it, what
/// it takes, and what a key takes.
struct Tables {
  std::vector<std::string> verbs;
  std::string words;
  std::string takes;
};

std::string row(std::string_view of, const std::vector<std::string>& words) {
  return fmt::format("    '{}') echo '{}' ;;\n", of, fmt::join(words, " "));
}

void add_verb(const CLI::App& app, const std::string& path, Tables& tables) {
  std::vector<std::string> words;
  std::vector<std::string> takes;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    words.push_back(verb->get_name());
    const std::string longer = fmt::format("{} {}", path, verb->get_name());
    tables.verbs.push_back(longer);
    add_verb(*verb, longer, tables);
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    for (const std::string& name : option->get_snames()) words.push_back("-" + name);
    if (option->get_positional()) {
      takes.push_back(option->get_name());
    } else if (option->get_items_expected_max() > 0) {
      takes.emplace_back("FILE");  // so far all options name files
    }
  }
  tables.words += row(path, words);
  if (!takes.empty()) tables.takes += row(path, takes);
}

/// The words that a key takes, as its schema has them; null goes without saying.
void add_words(const nlohmann::json& schema, std::vector<std::string>& words) {
  const auto add = [&](const nlohmann::json& word) {
    words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
  };
  for (const auto& word : schema.value("enum", nlohmann::json::array())) add(word);
  if (schema.contains("const")) add(schema["const"]);
  if (schema.value("type", "") == "boolean") words.insert(words.end(), {"true", "false"});
  for (const auto& each : schema.value("anyOf", nlohmann::json::array())) add_words(each, words);
}

constexpr std::string_view kTables = R"SH(_sluice_verb() {{
  case $1 in
    {}) return 0 ;;
  esac
  return 1
}}

_sluice_words() {{
  case $1 in
{}  esac
}}

_sluice_takes() {{
  case $1 in
{}  esac
}}

_sluice_values() {{
  case $1 in
{}  esac
}}

_sluice_keys='{}'

)SH";

constexpr std::string_view kBash = R"SH(_sluice() {
  local current=${COMP_WORDS[COMP_CWORD]} verb='' given='' key='' begin='' word takes i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if _sluice_verb "$verb $word"; then verb="$verb $word"; elif [[ $word != -* ]]; then given=yes; fi
  done
  COMPREPLY=()
  if [[ $current == = ]]; then # readline takes = for the end of a word
    key=${COMP_WORDS[COMP_CWORD - 1]} current=''
  elif ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[COMP_CWORD - 1]} == = ]]; then
    key=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $current == *=* ]]; then
    key=${current%%=*} current=${current#*=} begin=$key=
  fi
  takes=$(_sluice_takes "$verb")
  if [[ -n $key ]]; then
    word=$(_sluice_values "$key")
    if [[ -n $word ]]; then
      mapfile -t COMPREPLY < <(compgen -P "$begin" -W "$word" -- "$current")
      return
    fi
  elif [[ $current == -* || -z $takes ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_sluice_words "$verb")" -- "$current")
    return
  elif [[ -n $given && $takes == *KEY=VALUE* ]]; then
    mapfile -t COMPREPLY < <(compgen -S = -W "$_sluice_keys" -- "$current")
    compopt -o nospace 2>/dev/null
    return
  elif [[ $takes == SHELL ]]; then
    mapfile -t COMPREPLY < <(compgen -W 'bash zsh' -- "$current")
    return
  fi
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -P "$begin" -f -- "$current")
}
complete -F _sluice sluice ./sluice
)SH";

constexpr std::string_view kZsh = R"SH(_sluice() {
  local current=${words[CURRENT]} verb='' given='' word takes values i
  for ((i = 2; i < CURRENT; i++)); do
    word=${words[i]}
    if _sluice_verb "$verb $word"; then verb="$verb $word"; elif [[ $word != -* ]]; then given=yes; fi
  done
  takes=$(_sluice_takes "$verb")
  if [[ $current == *=* ]]; then
    values=$(_sluice_values "${current%%=*}")
    compset -P '*='
    if [[ -n $values ]]; then compadd -- ${=values}; else _files; fi
  elif [[ $current == -* || -z $takes ]]; then
    compadd -- ${=$(_sluice_words "$verb")}
  elif [[ -n $given && $takes == *KEY=VALUE* ]]; then
    compadd -S = -- ${=_sluice_keys}
  elif [[ $takes == SHELL ]]; then
    compadd -- bash zsh
  else
    _files
  fi
}
compdef _sluice sluice ./sluice
)SH";

}  // namespace

std::string completion(const CLI::App& app, Shell shell) {
  Tables tables;
  add_verb(app, "", tables);
  std::string values;
  for (const config::Field& field : config::fields()) {
    std::vector<std::string> words;
    add_words(field.schema, words);
    if (!words.empty()) values += row(field.path, words);
  }
  return fmt::format(kTables, fmt::format("'{}'", fmt::join(tables.verbs, "' | '")), tables.words,
                     tables.takes, values, fmt::join(config::known_paths(), " ")) +
         std::string(shell == Shell::kBash ? kBash : kZsh);
}

}  // namespace sluice::app
