"""Requests, preferences, instructions and intents in German, Spanish, French, Japanese, Arabic and Hindi."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from memos.core.text.instructions import instructs, standing_instructions
from memos.core.text.preferences import states_preference
from memos.core.text.sentences import is_request
from memos.search.question import Intent, read_question

REQUESTS = [
    "Kannst du mir ein Restaurant empfehlen?",
    "Was soll ich heute Abend kochen?",
    "Hast du Ideen? Bitte hilf mir.",
    "¿Puedes recomendarme un hotel?",
    "¿Qué debería cocinar esta noche?",
    "Dame ideas para la cena.",
    "Pourrais-tu me proposer un restaurant ?",
    "Que devrais-je cuisiner ce soir ?",
    "Recommande-moi un hôtel à Lyon.",
    "おすすめのレストランはありますか？",
    "夕食は何がいい？",
    "اقترح لي مطعمًا في الرباط.",
    "ماذا يجب أن أطبخ الليلة؟",
    "मुझे एक अच्छे होटल का सुझाव दो।",
    "आज रात मुझे क्या खाना चाहिए?",
]
FACTS_ASKED_FOR = [
    "Wo wohnt Anna?",
    "Weißt du noch, wo ich wohne?",
    "Kannst du dich erinnern, was ich gegessen habe?",
    "¿Dónde vive Ana?",
    "¿Recuerdas dónde vivo?",
    "Où habite Anne ?",
    "Te souviens-tu de mon adresse ?",
    "私はどこに住んでいますか？",
    "أين تسكن آنا؟",
    "هل تتذكر أين أسكن؟",
    "आना कहाँ रहती है?",
]
PREFERENCES = [
    "Ich mag keinen Fisch.",
    "Ich trinke nur Tee.",
    "Ich bin allergisch gegen Nüsse.",
    "Prefiero los hoteles pequeños.",
    "No me gusta el pescado.",
    "No bebo alcohol.",
    "Je préfère les petits hôtels.",
    "Je n'aime pas le poisson.",
    "Je ne bois pas d'alcool.",
    "魚が苦手です。",
    "コーヒーが好きです。",
    "أنا نباتية.",
    "لا أحب السمك.",
    "मुझे मछली पसंद नहीं है।",
    "मैं शराब नहीं पीता।",
]
NO_PREFERENCES = [
    "Ich wohne in Graz.",
    "Vivo en Lugo con mi tía.",
    "J'habite à Lille.",
    "私は東京に住んでいます。",
    "أسكن في فاس.",
    "मैं पुणे में रहता हूँ।",
]
INSTRUCTIONS = [
    "Antworte mir immer auf Deutsch.",
    "Bitte nenn mich nie wieder Susi.",
    "Ab jetzt schreib bitte kurze Sätze.",
    "Nenn mich Kapitän.",
    "Responde siempre en español.",
    "A partir de ahora usa frases cortas.",
    "No uses emojis.",
    "Llámame Capitán.",
    "Réponds toujours en français.",
    "Désormais, utilise des phrases courtes.",
    "N'utilise jamais d'emojis.",
    "Appelle-moi Capitaine.",
    "今後は敬語で答えてください。",
    "必ず日本語で返事してください。",
    "キャプテンと呼んで。",
    "أجب دائمًا بالعربية.",
    "من الآن فصاعدًا اكتب جملًا قصيرة.",
    "لا تستخدم الرموز التعبيرية.",
    "हमेशा हिंदी में जवाब दो।",
    "अब से छोटे वाक्य लिखो।",
]
NO_INSTRUCTIONS = [
    "Ich antworte immer auf Deutsch.",
    "Antwortest du immer so kurz?",
    "Siempre respondo en español a mi madre.",
    "Je réponds toujours en français à ma mère.",
    "私はいつも日本語で話します。",
    "أكتب دائمًا بالعربية.",
    "मैं हमेशा हिंदी में लिखता हूँ।",
]
WANTED = [
    ("Wie viele Katzen hat Anna?", Intent.COUNT),
    ("¿Cuántos gatos tiene Ana?", Intent.COUNT),
    ("Combien de chats a Anne ?", Intent.COUNT),
    ("كم قطة لدى آنا؟", Intent.COUNT),
    ("आना के पास कितनी बिल्लियाँ हैं?", Intent.COUNT),
    ("Wo wohnt Anna derzeit?", Intent.LATEST),
    ("¿Dónde vive Ana actualmente?", Intent.LATEST),
    ("Où habite Anne en ce moment ?", Intent.LATEST),
    ("アンナは現在どこに住んでいますか？", Intent.LATEST),
    ("أين تسكن آنا حاليًا؟", Intent.LATEST),
    ("आना आजकल कहाँ रहती है?", Intent.LATEST),
    ("Où habitait Anne auparavant ?", Intent.FORMER),
    ("アンナは以前どこに住んでいましたか？", Intent.FORMER),
    ("أين كانت تسكن آنا من قبل؟", Intent.FORMER),
    ("आना पहले कहाँ रहती थी?", Intent.FORMER),
    ("Wann zieht Anna um?", Intent.WHEN),
    ("¿Cuándo se muda Ana?", Intent.WHEN),
    ("Quand Anne déménage-t-elle ?", Intent.WHEN),
    ("متى تنتقل آنا؟", Intent.WHEN),
    ("आना कब जा रही है?", Intent.WHEN),
    ("Welches Buch empfiehlst du mir?", Intent.ADVICE),
    ("¿Qué libro me recomiendas?", Intent.ADVICE),
    ("Quel livre me conseilles-tu ? J'ai besoin de conseils.", Intent.ADVICE),
    ("اقترح لي كتابًا.", Intent.ADVICE),
    ("मुझे एक किताब का सुझाव दो।", Intent.ADVICE),
    ("In welcher Reihenfolge habe ich die Städte besucht?", Intent.ORDER),
    ("¿En qué orden visité las ciudades?", Intent.ORDER),
    ("Dans quel ordre ai-je visité les villes ?", Intent.ORDER),
]


@pytest.mark.parametrize("text", REQUESTS)
def test_a_request_is_told_apart(text: str) -> None:
    assert is_request(text)


@pytest.mark.parametrize("text", FACTS_ASKED_FOR)
def test_a_question_for_a_fact_is_no_request(text: str) -> None:
    assert not is_request(text)


@pytest.mark.parametrize("text", PREFERENCES)
def test_a_preference_is_read(text: str) -> None:
    assert states_preference(text)


@pytest.mark.parametrize("text", NO_PREFERENCES)
def test_a_statement_is_no_preference(text: str) -> None:
    assert not states_preference(text)


@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_a_standing_instruction_is_read(text: str) -> None:
    assert standing_instructions(text) == [(0, len(text))]


@pytest.mark.parametrize("text", NO_INSTRUCTIONS)
def test_what_speakers_do_themselves_is_no_instruction(text: str) -> None:
    assert not instructs(text)


@pytest.mark.parametrize(("text", "intent"), WANTED)
def test_a_question_says_what_it_wants(text: str, intent: Intent) -> None:
    assert intent in read_question(text, datetime(2026, 1, 1, tzinfo=UTC), ZoneInfo("UTC")).intents
