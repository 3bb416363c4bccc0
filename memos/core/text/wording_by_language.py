"""Wording of questions, requests, preferences and instructions in other languages than English and Chinese.

Patterns for German, Spanish, French, Japanese, Arabic and Hindi, to be searched without regard to case beside those of
English and Chinese. Hardly a word of theirs is an English one. Times are in `times_by_language`.
"""

from __future__ import annotations

INTENTS: dict[str, tuple[str, ...]] = {
    "count": (
        r"\bwie (?:viele?|oft)\b",
        r"\bcuánt[oa]s?\b",
        r"\bcombien\b",
        r"何[人冊匹件枚]",
        r"(?<![\u0621-\u0652])كم(?![\u0621-\u0652])",
        r"कितन[ेाी]",
    ),
    "list": (
        r"\bwelche \w{3,} (?:sind|waren|habe|haben|hat|hatte|mag|mögen)\b",
        r"\bqué \w+s (?:son|fueron|ha|han|he|tiene|tienen|tengo)\b|\bcuáles\b",
        r"\bquel(?:le)?s (?:sont|étaient|\w+s)\b",
        r"どの.{1,10}(?:たち|など)|全部で?|何と何",
        r"ما هي .{2,30}ات",
        r"कौन-?\s?कौन|क्या-?\s?क्या",
    ),
    "latest": (
        r"\b(?:aktuell\w*|derzeit|momentan|zurzeit|im Moment|jetzt|neueste[nrs]?|zuletzt|heutzutage)\b",
        r"\b(?:actualmente|ahora|hoy en día|en este momento|últimamente|más recientes?|la última vez)\b",
        r"\b(?:actuellement|maintenant|en ce moment|ces jours-ci|dernièrement|plus récente?s?|la dernière fois)\b",
        r"現在|今は|いまは|直近",
        r"الآن|حالي[اًا]+|هذه الأيام|آخر مرة|مؤخر[اًا]+",
        r"अभी|फ़िलहाल|फिलहाल|वर्तमान|आजकल|इस समय|हाल ही",
    ),
    "first": (
        r"\b(?:zum ersten Mal|als Erstes|am Anfang)\b",
        r"\b(?:por primera vez|al principio)\b",
        r"\b(?:pour la première fois|la première fois|au début)\b",
        r"最初",
        r"أول مرة|في البداية",
        r"पहली बार|शुरू में",
    ),
    "former": (
        r"\b(?:auparavant|autrefois|précédemment|jadis|ancien(?:ne)?s?\b|à l['’]origine|avant (?:que|de|ça|cela)\b"
        r"|avant d['’]|avant\W*$)",
        r"以前|昔|前は",
        r"سابق[اًا]+|في السابق|من قبل|القديمة?(?![\u0621-\u0652])|السابقة?(?![\u0621-\u0652])",
        r"पहले .{0,40}(?:था|थी|थे)|पुरान[ाेी]",
    ),
    "advice": (
        r"\b(?:empfiehl\w*|empfehl\w*|Vorschl[aä]g\w*|Tipps?|Ratschl\w+|Ideen|(?:was|wo|wohin|welche\w*) "
        r"(?:\w+ )?soll(?:te)? (?:ich|wir))\b",
        r"\b(?:recomienda\w*|recomi[eé]nd\w*|recomendaci\w+|sugi[eé]re\w*|sugerencias?|consejos?|ideas para"
        r"|(?:qué|dónde|cuál) (?:\w+ )?deber[ií]a\w*)\b",
        r"\b(?:recommande(?:z|-moi|rais)?|recommandations?|conseille(?:z|-moi|rais)?|conseils?|suggère\w*|suggestions?"
        r"|idées|(?:que|où|quel\w*) (?:\w+ )?devr(?:ais|ions)-(?:je|nous))\b",
        r"おすすめ|お勧め|オススメ|アドバイス|提案",
        r"نصيحة|نصائح|اقتراح\w*|اقترح\w*|توصي\w*|انصح\w*|أفكار",
        r"सुझाव|सुझाओ|सुझाइए|सलाह|सिफ़?ारिश",
    ),
    "when": (
        r"^\W*(?:seit )?wann\b|\b(?:an welchem (?:Tag|Datum)|in welchem (?:Jahr|Monat))\b",
        r"\bcuándo\b|\bqué (?:día|fecha|año|mes)\b",
        r"^\W*(?:depuis )?quand\b|\bquel (?:jour|mois)\b|\bquelle (?:date|année)\b",
        r"متى|في أي (?:يوم|سنة|عام|شهر|تاريخ)",
        r"(?<![\u0900-\u097f])कब(?![\u0900-\u097f])|किस (?:दिन|साल|तारीख़?|महीने)",
    ),
    "order": (
        r"\b(?:Reihenfolge|chronologisch\w*)\b",
        r"\b(?:en qué orden|orden cronológico)\b",
        r"\b(?:dans quel ordre|ordre chronologique)\b",
        r"ترتيب|التسلسل الزمني",
        r"किस क्रम|कालक्रम",
    ),
}
"""Patterns of what a question wants, by the values of `memos.search.question.Intent`."""

REQUESTS = (
    r"\b(?:kannst|könntest|würdest) du\b|\bkönn(?:t)?en Sie\b|\bbitte\b",
    r"\b(?:empfiehl|empfehle|schlag|hilf|zeig|gib|nenn)e? (?:mir|uns)\b"
    r"|\b(?:Empfehlungen|Vorschläge|Tipps|Ratschläge)\b",
    r"\b(?:was|welche[nrs]?|wo|wohin|wie) (?:\w+ ){0,3}(?:soll|sollte|sollten|könnte|könnten|kann) (?:ich|wir)\b",
    r"\b(?:me )?(?:puedes|podrías|puede usted)\b|\bpor favor\b|\b(?:ayúdame|muéstrame|dame|recomiéndame|sugiéreme)\b",
    r"\b(?:recomiendas|recomendaciones|sugerencias|consejos|ideas para)\b",
    r"\b(?:qué|cuál|dónde|cómo) (?:\w+ ){0,3}(?:debería|deberíamos|podría|podríamos|puedo|podemos)\b",
    r"\b(?:peux-tu|pourrais-tu|pouvez-vous|pourriez-vous)\b|\bs['’]il (?:te|vous) plaît",
    r"\b(?:recommande|conseille|suggère|propose|aide|donne|montre)z?-(?:moi|nous)\b|\b(?:recommandations|conseils)\b",
    r"\b(?:que|quel\w*|où|comment) (?:\w+ ){0,3}(?:devrais|devrions|pourrais|pourrions|puis)-(?:je|nous)\b",
    r"おすすめ|お勧め|オススメ|提案して(?!くれた)|アドバイス|どうすれば|(?:何|どれ|どこ|どちら)がいい|てください|手伝って",
    r"(?:اقترح|انصح|ساعد|أعط|اعط)ني|(?:اقترح|رشح) (?:لي|علي)|نصيحة|نصائح|اقتراحات|هل يمكنك|من فضلك"
    r"|ماذا (?:علي|يجب|ينبغي)|أين يمكنني|ما (?:هو |هي )?أفضل|بماذا توصي",
    r"सुझाव|सुझाओ|सुझाइए|सलाह|सिफ़?ारिश|मदद (?:करो|करें|कीजिए)|कृपया|क्या करूँ|करना चाहिए|जाना चाहिए|खाना चाहिए"
    r"|कौन-?\s?सा .{0,30}(?:अच्छा|बेहतर|सही) (?:रहेगा|होगा|है)",
)
"""Patterns of what asks for an action or for advice."""

RECALLS = (
    r"^\W*(?:weißt du(?: noch)?|erinnerst du|kannst du dich (?:noch )?erinnern)\b",
    r"^\W*(?:recuerdas|te acuerdas|sabes)\b",
    r"^\W*(?:te souviens-tu|tu te souviens|sais-tu|te rappelles-tu)\b",
    r"覚えて(?:い)?(?:る|ます)",
    r"^\W*هل (?:تذكر|تتذكر|تعرف)",
    r"(?:तुम्हें|आपको) याद",
)
"""Patterns of what asks for a fact although it has the wording of a request."""

PREFERENCES = (
    r"\bich (?:\w+ ){0,2}(?:mag|liebe|hasse|bevorzuge|vermeide|meide|verabscheue|genieße|vertrage)\b",
    r"\bich (?:esse|trinke|kaufe|nutze|benutze|trage|fliege) (?:\w+ ){0,3}(?:nur|kein\w*|nie|niemals|nicht"
    r"|am liebsten)\b",
    r"\b(?:allergisch|Allergie|vegetarisch|Vegetarier(?:in)?|vegan|Veganer(?:in)?|laktoseintolerant|am liebsten"
    r"|mein(?:e|en)? Lieblings\w+|Lieblings\w+ (?:ist|sind)|Angst vor|kein Fan von)\b",
    r"\b(?:prefiero|odio|detesto|adoro|evito|no soporto|no aguanto)\b|\b(?:no )?me (?:gustan?|encantan?|molestan?)\b",
    r"\bno (?:como|bebo|tomo|compro|uso)\b|\b(?:alérgic[oa]|alergia|vegetarian[oa]|vegan[oa]|intolerante"
    r"|mi \w+ favorit[oa]|miedo a)\b",
    r"\bje (?:\w+ )?(?:préfère|déteste|hais|évite|supporte)\b|\bj['’](?:aime|adore|évite|ai horreur)\b"
    r"|\bje n['’]aime\b",
    r"\bje ne (?:mange|bois|supporte|prends|porte)\b|\b(?:allergique|allergie|végétarien(?:ne)?|végétalien(?:ne)?"
    r"|végane?|intolérante?|mon \w+ préféré|ma \w+ préférée|peur (?:de|des|du))\b",
    r"(?:私|僕|俺)?[^。！？]{0,20}(?:が|は)(?:大?好き|大?嫌い|苦手)|アレルギー|ベジタリアン|菜食|ビーガン"
    r"|(?:食べ|飲め|飲ま|使わ)(?:られ)?ない(?:んだ|です|の|$|。)|(?:方|ほう)が好き|お気に入り",
    r"(?<![\u0621-\u0652])(?:لا )?(?:أحب|أكره|أفضل (?!م)|أعشق|أتجنب|أستمتع)|لا (?:آكل|أشرب|أطيق|أتحمل|أستخدم)"
    r"|حساسية|نباتية?(?![\u0621-\u0652])|المفضلة?(?![\u0621-\u0652])|أخاف من",
    r"पसंद|नापसंद|नफ़?रत|एलर्जी|शाकाहारी|वीगन|नहीं (?:खाता|खाती|पीता|पीती|लेता|लेती)|परहेज़?|मनपसंद|डर लगता",
)
"""Patterns of what its speaker likes, avoids or cannot have."""

_DE_VERBS = (
    r"(?:antworte|schreibe?|sprich|erkläre?|nenne?|verwende|benutze|nutze|gib|halte|fasse?|sage?|frage?|zeige?|mache?"
    r"|formuliere|übersetze|erinnere|duze|sieze)"
)
_ES_VERBS = (
    r"(?:responde\w*|respónd\w*|respondas|escrib\w+|habl\w+|háblame|usa|uses|utiliza|utilices|llámame|dime|digas|explica"
    r"|explícame|dame|des|evita|incluye|incluyas|empieza|termina|resume|tutéame|recuérdame)"
)
_FR_VERBS = (
    r"(?:réponds|répondez|écris|écrivez|parle|parlez|utilise|utilisez|explique|expliquez|donne|donnez|évite|évitez"
    r"|tutoie|vouvoie|résume|résumez|rappelle|appelle|appelez|commence|termine)(?:-moi)?"
)
INSTRUCTIONS = (
    rf"\b(?:ab (?:jetzt|sofort|heute)|von (?:nun|jetzt) an|in Zukunft|künftig)\b[^.!?]{{0,80}}"
    rf"\b(?:bitte|{_DE_VERBS})\b",
    rf"(?:^|[,;:] )(?:bitte )?{_DE_VERBS}\b[^.!?]{{0,60}}\b(?:immer|nie|niemals|stets|nur|jedes Mal|kurz|keine?n?"
    r"|auf (?:Deutsch|Englisch|Französisch|Spanisch))\b",
    r"\b(?:bitte|du sollst|du darfst)\b[^.!?]{0,40}\b(?:immer|nie|niemals|nie wieder|nicht mehr|stets)\b",
    r"(?:^|[,;:] )(?:bitte )?nenne? mich (?!morgen|später)\w",
    rf"\b(?:a partir de (?:ahora|hoy)|(?:de ahora )?en adelante|desde ahora|en el futuro)\b[^.!?]{{0,80}}"
    rf"\b(?:{_ES_VERBS}|no \w+)\b",
    rf"(?:^|[,;:] )(?:por favor,? )?(?:siempre|nunca|jamás) (?:me )?{_ES_VERBS}\b",
    rf"(?:^|[,;:] )(?:por favor,? )?{_ES_VERBS}\b[^.!?]{{0,60}}\b(?:siempre|nunca|sol[oa]|sólo|sin|en (?:español|inglés"
    r"|francés|alemán)|brevemente|respuestas cortas)\b",
    r"(?:^|[,;:] )no (?:uses|utilices|escribas|respondas|hables|me llames|incluyas|digas)\b",
    r"\bllámame (?!mañana|luego|más tarde|cuando|al|por)\w",
    rf"\b(?:à partir de maintenant|désormais|dorénavant|à l['’]avenir)\b[^.!?]{{0,80}}\b(?:{_FR_VERBS}|ne \w+)\b",
    rf"(?:^|[,;:] )(?:s['’]il (?:te|vous) plaît,? )?{_FR_VERBS}\b[^.!?]{{0,60}}\b(?:toujours|jamais|uniquement"
    r"|seulement|sans|en (?:français|anglais|espagnol|allemand)|brièvement|courtes?)\b",
    r"^(?:ne (?:me )?\w+|n['’]\w+) (?:jamais|plus)\b",
    r"\bappelle(?:z)?-moi (?!demain|plus tard|quand|dès|ce|au|à)\w",
    r"(?:今後|これから|次回から|以後)は?[^。！？]{0,30}(?:てください|でください|ないで|て(?:ね|ほしい|くれ)|呼んで|答えて)",
    r"(?:必ず|常に|いつも|絶対に?|毎回|決して)[^。！？]{0,30}(?:てください|でください|ないで|て(?:ね|ほしい|くれ)?[。！!]?$)",
    r"(?:日本語|英語|中国語|敬語|箇条書き|短く?)で?(?:だけ)?(?:答えて|回答して|返事して|話して|書いて)|(?:と|って)呼んで",
    r"من (?:الآن|اليوم) فصاعد[اًا]+",
    r"(?:^|[،؛:] ?)(?:من فضلك ?،? ?)?(?:أجب|اجب|اكتب|تحدث|استخدم|خاطب|رد|اشرح)(?:ني)?[^.!؟]{0,60}(?:دائم[اًا]+|فقط"
    r"|باختصار|باللغة|بالعربية|بالإنجليزية|دون|بدون)",
    r"(?:^|[،؛:] ?)دائم[اًا]+ (?:أجب|اكتب|استخدم|تحدث)",
    r"(?:^|[،؛:] ?)لا (?:تستخدم|تكتب|تجب|تذكر|ترسل|تخاطبني|تنادني)",
    r"نادِ?ني ",
    r"(?:अब से|आगे से|आज से|भविष्य में|आइंदा)[^।!?]{0,80}(?:दो|दें|दीजिए|देना|करो|करें|कीजिए|करना|लिखो|लिखें|लिखना|बोलो|बोलें"
    r"|बताओ|बताएँ|मत|रखो|रखें|बुलाओ|बुलाएँ)",
    r"(?:हमेशा|सिर्फ़?|केवल|कभी)[^।!?]{0,60}(?:दो|दें|दीजिए|देना|करो|करें|कीजिए|करना|लिखो|लिखें|लिखना|बोलो|बताओ"
    r"|मत [^।]{2,12})[।!]?$",
    r"मुझे \S+ (?:कहकर|के नाम से|बुलाओ|बुलाएँ|कहो)",
)
"""Patterns of sentences that tell the assistant how to act from now on."""
