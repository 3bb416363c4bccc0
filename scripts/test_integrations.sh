#!/bin/sh
# Tests memos.integrations with the frameworks themselves: all but those in WITHOUT, or the modules named. SETUP_ONLY=1
# only installs them.
# Frameworks that install together share .venv-integrations; each of the others has an environment of its own, as has
# LiteLLM's proxy.
set -eu

apart="claude_agent crewai"  # the first for its 400 MB
all=
for path in memos/integrations/*.py; do
    name=$(basename "$path" .py)
    case " ${WITHOUT:-} " in *" $name "*) continue ;; esac
    [ -e "tests/integrations/test_$name.py" ] && [ "$name" != memory ] && [ "$name" != transcript ] && all="$all $name"
done

# What frameworks would tell their makers; litellm fetches a list of prices when it is imported.
export DO_NOT_TRACK=1 HAYSTACK_TELEMETRY_ENABLED=False AGNO_TELEMETRY=false CREWAI_DISABLE_TELEMETRY=true
export OTEL_SDK_DISABLED=true OPENAI_AGENTS_DISABLE_TRACING=1 LANGSMITH_TRACING=false LITELLM_LOCAL_MODEL_COST_MAP=True MEM0_TELEMETRY=False

run() { # environment, modules
    environment=$1
    shift
    sh scripts/make_venv.sh "$environment"
    packages="packaging pytest pytest-xdist hypothesis"
    extras="server $*"
    tests=$(printf 'tests/integrations/test_%s.py ' "$@")
    case " $* " in *" autogen "*) packages="$packages autogen-ext" ;; esac
    case " $* " in *" claude_agent "*) extras="mcp $*" tests="$tests tests/integrations/test_claude_code.py" ;; esac
    tests="$tests tests/integrations/test_installed.py"
    if [ "$environment" = .venv-integrations ]; then # memos.compat.mem0 is compared with the package itself
        packages="$packages mem0ai langmem"
        tests="$tests tests/integrations/test_mem0_signatures.py tests/integrations/test_langmem_page.py"
    fi
    # Since 1.108 the proxy's packages are a distribution of their own, which not every index has.
    [ "$environment" != .venv-integrations-litellm ] || packages="$packages litellm[proxy]<1.108"
    # shellcheck disable=SC2086 # several words
    CONSTRAINTS=tests/integrations/constraints${environment#.venv-integrations}.txt \
        sh scripts/install.sh "$environment" --editable ".[$(echo "$extras" | tr ' _' ',-')]" $packages
    [ -z "${SETUP_ONLY:-}" ] || return 0
    # Their warnings are theirs, but for coroutines that nobody awaits.
    # shellcheck disable=SC2086
    INTEGRATIONS="$*" "$environment/bin/python" -m pytest -q -p no:cacheprovider -n "${WORKERS:-2}" --dist loadfile \
        -W ignore -W error::RuntimeWarning $tests
}

common=
for name in ${*:-$all}; do
    case " $apart " in *" $name "*) ;; *) common="$common $name" ;; esac
done
# shellcheck disable=SC2086
[ -z "$common" ] || run .venv-integrations $common
for name in ${*:-$all}; do
    case " $apart litellm " in *" $name "*) run ".venv-integrations-$name" "$name" ;; esac
done
