"""Made-up secrets of every format, each in a sentence, and texts that look like secrets and are none."""

from __future__ import annotations

import base64
import random
import string

_SEED = random.Random(11)
_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + string.digits


def _of(signs: str, length: int) -> str:
    # With a digit and a letter, as nearly all are.
    return "".join(_SEED.choice(signs) for _ in range(length - 2)) + "7" + signs[3]


def _b64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _pem(kind: str, lines: int = 12) -> str:
    body = "\n".join(_of(_ALNUM + "+/", 64) for _ in range(lines))
    return f"-----BEGIN {kind}-----\n{body}\n{_of(_ALNUM, 30)}==\n-----END {kind}-----"


_JWT = ".".join(
    (_b64('{"alg":"HS256","typ":"JWT"}'), _b64('{"sub":"1234567890","name":"Ann"}'), _of(_ALNUM + "_-", 43))
)

SECRETS: tuple[tuple[str, str, str], ...] = tuple(
    (kind, before + secret + after, secret)
    for kind, before, secret, after in (
        ("aws key", "the id is ", "AKIA" + _of(_UPPER, 16), ", keep it"),
        ("aws key", "aws_secret_access_key = ", _of(_ALNUM + "+/", 40), "\n"),
        ("aws key", '{"SecretAccessKey": "', _of(_ALNUM + "+/", 40), '"}'),
        ("aws key", "export AWS_SECRET_ACCESS_KEY='", _of(_ALNUM + "+/", 40), "'"),
        ("google key", "key=", "AIza" + _of(_ALNUM + "_-", 35), " for maps"),
        ("google token", "use ", "ya29." + _of(_ALNUM + "_-", 60), ""),
        ("google token", "client secret ", "GOCSPX-" + _of(_ALNUM, 28), "."),
        ("azure key", "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=", _of(_ALNUM, 86) + "==", ";Suffix=y"),
        ("azure key", "the client secret: ", "aB3" + "8Q~" + _of(_ALNUM, 34), ""),
        ("azure token", "https://x.blob.core.windows.net/c?sv=2022&sig=", _of(_ALNUM, 43) + "%3D", "&se=2030"),
        ("digitalocean token", "", "dop_v1_" + _of(_HEX, 64), ""),
        ("databricks token", "", "dapi" + _of(_HEX, 32), " works"),
        ("vault token", "", "hvs." + _of(_ALNUM, 90), ""),
        ("anthropic key", "export ANTHROPIC_API_KEY=", "sk-ant-api03-" + _of(_ALNUM + "_-", 93) + "AA", ""),
        ("openai key", "my key: ", "sk-proj-" + _of(_ALNUM + "_-", 74), " ok?"),
        ("openai key", "old one ", "sk-" + _of(_ALNUM, 20) + "T3BlbkFJ" + _of(_ALNUM, 20), ""),
        ("hugging face token", "HF_TOKEN=", "hf_" + _of(string.ascii_letters, 34), ""),
        ("groq key", "", "gsk_" + _of(_ALNUM, 52), ""),
        ("github token", "push with ", "ghp_" + _of(_ALNUM, 36), " please"),
        ("github token", "", "gho_" + _of(_ALNUM, 36), ""),
        ("github token", "", "github_pat_" + _of(_ALNUM, 22) + "_" + _of(_ALNUM, 59), ""),
        ("gitlab token", "", "glpat-" + _of(_ALNUM + "_-", 20), " is it"),
        ("gitlab token", "", "glrt-" + _of(_ALNUM + "_-", 20), ""),
        ("npm token", "", "npm_" + _of(_ALNUM, 36), ""),
        ("npm token", "//registry.npmjs.org/:_authToken=", "0e8f7a41-5c1d-4d2e-9b57-3f1f0c6a7b21", "\n"),
        ("pypi token", "", "pypi-AgEIcHlwaS5vcmc" + _of(_ALNUM + "_-", 150), ""),
        ("docker token", "", "dckr_pat_" + _of(_ALNUM, 27), ""),
        ("slack token", "", "xoxb-123456789012-1234567890123-" + _of(_ALNUM, 24), ""),
        ("slack token", "", "xapp-1-A0123456789-1234567890123-" + _of(_HEX, 64), ""),
        ("slack webhook", "https://hooks.slack.com/services/", "T0123ABCD/B0123ABCD/" + _of(_ALNUM, 24), ""),
        ("discord token", "", _b64("123456789012345678") + ".GhIjK1." + _of(_ALNUM + "_-", 38), ""),
        ("discord webhook", "https://discord.com/api/webhooks/123456789012345678/", _of(_ALNUM + "_-", 68), ""),
        ("telegram token", "bot token ", "1234567890:AA" + _of(_ALNUM + "_-", 33), ""),
        ("telegram token", "https://api.telegram.org/bot", "1234567890:AA" + _of(_ALNUM + "_-", 33), "/getMe"),
        ("twilio key", "", "SK" + _of(_HEX, 32), ""),
        ("sendgrid key", "", "SG." + _of(_ALNUM, 22) + "." + _of(_ALNUM, 43), ""),
        ("mailgun key", "", "key-" + _of(_HEX, 32), ""),
        ("mailchimp key", "", _of(_HEX, 32) + "-us12", ""),
        ("stripe key", "", "sk_live_" + _of(_ALNUM, 24), ""),
        ("stripe key", "", "rk_test_" + _of(_ALNUM, 40), ""),
        ("square token", "", "sq0csp-" + _of(_ALNUM + "_-", 43), ""),
        ("shopify token", "", "shpat_" + _of(_HEX, 32), ""),
        ("json web token", "cookie ", _JWT, "; path=/"),
        ("json web token", "token=", _JWT, "&x=1"),
        ("bearer token", "curl -H 'Authorization: Bearer ", _of(_ALNUM, 40), "' https://x"),
        ("bearer token", '{"Authorization": "Bearer ', _of(_ALNUM, 24), '"}'),
        ("basic credentials", "Authorization: Basic ", base64.b64encode(b"ann:opensesame").decode(), "\n"),
        ("api key", "x-api-key: ", _of(_ALNUM, 32), "\n"),
        ("password", "postgresql://ann:", "s3cr3t-pw", "@db.example.com:5432/app"),
        ("password", "redis://:", "hunter2hunter2", "@localhost:6379/0"),
        ("password", "see https://ann:", "opensesame!", "@example.com/x"),
        ("password", "mongodb+srv://ann:", "p@ss+w0rd", "@cluster.example.net"),
        ("password", "Server=db;Database=app;User Id=sa;Password=", "Sup3r$ecret", ";Encrypt=true"),
        ("password", "host=db dbname=app user=ann password=", "s3cr3tpw", " port=5432"),
        ("token in a link", "https://x.com/cb?state=1&access_token=", _of(_ALNUM, 40), "&y=2"),
        ("wireguard key", "[Interface]\nPrivateKey = ", _of(_ALNUM, 43) + "=", "\nAddress = 10.0.0.1"),
        ("alibaba key", "", "LTAI" + _of(_ALNUM, 20), ""),
        ("tencent key", "", "AKID" + _of(_ALNUM, 32), ""),
        ("heroku key", "", "HRKU-" + _of(_ALNUM, 60), ""),
        ("terraform token", "", _of(_ALNUM, 14) + ".atlasv1." + _of(_ALNUM, 67), ""),
        ("pulumi token", "", "pul-" + _of(_HEX, 40), ""),
        ("supabase token", "", "sbp_" + _of(_HEX, 40), ""),
        ("planetscale token", "", "pscale_tkn_" + _of(_ALNUM, 43), ""),
        ("doppler token", "", "dp.pt." + _of(_ALNUM, 43), ""),
        ("xai key", "", "xai-" + _of(_ALNUM, 80), ""),
        ("perplexity key", "", "pplx-" + _of(_ALNUM, 48), ""),
        ("replicate token", "", "r8_" + _of(_ALNUM, 37), ""),
        ("langsmith key", "", "lsv2_pt_" + _of(_HEX, 32) + "_" + _of(_HEX, 10), ""),
        ("tavily key", "", "tvly-" + _of(_ALNUM, 32), ""),
        ("gitlab token", "", "gloas-" + _of(_HEX, 64), ""),
        ("rubygems key", "", "rubygems_" + _of(_HEX, 48), ""),
        ("artifactory key", "", "AKC" + _of(_ALNUM, 70), ""),
        ("atlassian token", "", "ATATT3" + _of(_ALNUM + "_-", 180), ""),
        ("linear key", "", "lin_api_" + _of(_ALNUM, 40), ""),
        ("notion token", "", "ntn_" + _of(_ALNUM, 46), ""),
        ("airtable token", "", "pat" + _of(_ALNUM, 14) + "." + _of(_HEX, 64), ""),
        ("figma token", "", "figd_" + _of(_ALNUM, 43), ""),
        ("postman key", "", "PMAK-" + _of(_HEX, 24) + "-" + _of(_HEX, 34), ""),
        ("grafana token", "", "glsa_" + _of(_ALNUM, 32) + "_" + _of(_HEX, 8), ""),
        ("sentry token", "", "sntrys_" + _of(_ALNUM, 80), ""),
        ("new relic key", "", "NRAK-" + _of(_UPPER, 27), ""),
        ("facebook token", "", "EAA" + _of(_ALNUM, 120), ""),
        ("age key", "", "AGE-SECRET-KEY-1" + _of(_UPPER, 58), ""),
        ("private key", "here:\n", _pem("RSA PRIVATE KEY"), "\nthanks"),
        ("private key", "", _pem("OPENSSH PRIVATE KEY"), ""),
        ("private key", "", _pem("PRIVATE KEY"), ""),
        ("private key", "", _pem("PGP PRIVATE KEY BLOCK"), ""),
    )
)

PEM = _pem("RSA PRIVATE KEY")
JWT = _JWT

HARMLESS = (
    "My password is tea.",
    "The password for the wifi is written on the fridge.",
    "secret: I love pineapple pizza",
    "api key management is hard; the token was rejected",
    "Authorization: Basic authentication is required",
    "Use bearer authentication with short-lived credentials-and-refresh-tokens",
    "My id is 550e8400-e29b-41d4-a716-446655440000.",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b fixed it",
    "sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "order AC-2023-000123 and ticket SK12345",
    "https://example.com:8080/path?q=1#frag and user@example.com",
    "https://example.com/a:b@c",
    "git@github.com:memstrata/memstrata.git",
    "docker run -p 8080:80 -v /a:/b image@sha256:abc",
    "postgresql://${USER}:${PASSWORD}@${HOST}/db",
    "postgresql://user:<password>@host/db and redis://:***@host",
    "sk-learn is not scikit-learn; the sk- prefix means nothing",
    "The variable is called github_token or ghp_token_of_ann",
    "eyJ is how base64 of JSON begins",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBa\n-----END CERTIFICATE-----",
    "A key begins with -----BEGIN PRIVATE KEY----- and ends with -----END PRIVATE KEY-----.",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7 ann@laptop",
    "com.example.OrderServiceImplementation.method.anotherVeryLongIdentifierName",
    "the AKIAFOO prefix and xoxo-hugs-and-kisses",
    "UHJvamVjdCBtZW1vcnkgbm90ZXMgZm9yIEFubg== is base64 of a note",
    "Krankenversicherungsnummernvergabestelle, Donaudampfschifffahrtsgesellschaft",
    "我的密码是茶。 令牌已经过期了。",
    "Mein Passwort ist Tee, das Token ist abgelaufen.",
    "call +49 30 1234567 or room 4711; version 1.2.3.4",
    "host=db dbname=app user=ann port=5432",
    "https://example.com/reset?token_type=bearer&page=2",
    "pk_live_ABCDEFGHIJKLMNOPQRSTUVWX is publishable",
)
