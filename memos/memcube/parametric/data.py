"""How what is stored of somebody is asked for and answered, in English and Chinese, by kind of fact. Data.

Of every kind some questions are never taught (`held_out`): by them it is measured what was learned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_HAN = re.compile(r"[\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class Phrases:
    """Questions and answers of one kind; braces hold who is meant, the `thing` asked for and its `value`."""

    direct: tuple[str, ...]
    held_out: tuple[str, ...]
    answer: str
    expects: str
    confirm: str
    confirmed: str
    denied: str
    cloze: str
    reverse: str = ""
    others: tuple[str, ...] = ()


def is_chinese(text: str) -> bool:
    """Say whether a text is written in Chinese characters."""
    return _HAN.search(text) is not None


def persons(subject: str | None, *, chinese: bool) -> dict[str, str]:
    """Return the words for whom a fact is about: None is the user who asks."""
    if chinese:
        return {"my": f"{subject}的", "I": subject, "You": subject, "Your": f"{subject}的"} if subject else _MYSELF_ZH
    if subject is None:
        return _MYSELF
    return {
        "do": "does", "am": "is", "I": subject, "me": subject, "my": f"{subject}'s", "You": subject,
        "you": subject, "Your": f"{subject}'s", "are": "is", "dont": "does not", "s": "s", "have": "has",
    }  # fmt: skip


_MYSELF = {
    "do": "do", "am": "am", "I": "I", "me": "me", "my": "my", "You": "You", "you": "you",
    "Your": "Your", "are": "are", "dont": "do not", "s": "", "have": "have",
}  # fmt: skip
_MYSELF_ZH = {"my": "我的", "I": "我", "You": "你", "Your": "你的"}

_LIKES = Phrases(
    direct=(
        "{Do} {I} like {thing}?", "What {do} {I} think of {thing}?", "{Am} {I} fond of {thing}?",
        "What is {my} opinion of {thing}?", "{Do} {I} enjoy {thing}?",
        "Is {thing} one of the things {I} like{s}?",
    ),
    held_out=("How {do} {I} feel about {thing}?", "Is {thing} something {I} enjoy{s}?"),
    answer="{You} like{s} {thing}.", expects="{you} like{s}",
    confirm="Is it true that {I} like{s} {thing}?", confirmed="Yes, {you} like{s} {thing}.", denied="",
    cloze="When it comes to {thing}, {I}",
)  # fmt: skip

ENGLISH = {
    "residence": Phrases(
        direct=(
            "Where {do} {I} live?", "Which place is {my} home?", "Can you tell me where {I} live{s}?",
            "In which town {do} {I} live now?",
        ),
        held_out=("Remind me where {my} home is.", "What is the name of the place where {I} live{s}?"),
        answer="{You} live{s} in {value}.", expects="{value}",
        confirm="{Do} {I} live in {value}?", confirmed="Yes, {you} live{s} in {value}.",
        denied="No, {you} live{s} in {value}.", cloze="{I} live{s} in", reverse="Who lives in {value}?",
        others=("Porto", "Leeds", "Graz", "Tampere", "Osaka", "Quito", "Perth", "Halifax"),
    ),
    "employer": Phrases(
        direct=(
            "Where {do} {I} work?", "Who is {my} employer?", "Which company {do} {I} work for?",
            "Can you tell me where {I} work{s}?",
        ),
        held_out=("Remind me who employs {me}.", "What is the name of the place where {I} work{s}?"),
        answer="{You} work{s} at {value}.", expects="{value}",
        confirm="{Do} {I} work at {value}?", confirmed="Yes, {you} work{s} at {value}.",
        denied="No, {you} work{s} at {value}.", cloze="{I} work{s} at", reverse="Who works at {value}?",
        others=("Harbour Bank", "Delta Foods", "the city library", "Oakfield School", "Norra Bygg", "Telko"),
    ),
    "name": Phrases(
        direct=("What is {my} name?", "What {am} {I} called?", "Can you tell me {my} name?", "How {am} {I} called?"),
        held_out=("Remind me what {my} name is.", "Do you know what {I} {am} called?"),
        answer="{Your} name is {value}.", expects="{value}",
        confirm="{Am} {I} called {value}?", confirmed="Yes, {your} name is {value}.",
        denied="No, {your} name is {value}.", cloze="{My} name is", reverse="Who is called {value}?",
        others=("Robin Hale", "Kim Larsen", "Noor Haddad", "Sam Okafor"),
    ),
    "my": Phrases(
        direct=(
            "What is {my} {thing}?", "Can you tell me {my} {thing}?", "What did I say {my} {thing} is?",
            "Do you know {my} {thing}?",
        ),
        held_out=("Remind me what {my} {thing} is.", "Say what {my} {thing} is."),
        answer="{Your} {thing} is {value}.", expects="{value}",
        confirm="Is {my} {thing} {value}?", confirmed="Yes, {your} {thing} is {value}.", denied="",
        cloze="{My} {thing} is",
    ),
    "likes": _LIKES,
    "dislikes": replace(
        _LIKES, answer="{You} {dont} like {thing}.", expects="{dont} like", confirmed="No, {you} {dont} like {thing}.",
    ),
    "said": Phrases(
        direct=(
            "What did {I} say about {thing}?", "What do you know about {me} and {thing}?",
            "Can you tell me what {I} told you about {thing}?", "Did {I} say anything about {thing}?",
        ),
        held_out=("Remind me what {I} said about {thing}.", "What do you remember about {me} and {thing}?"),
        answer="{You} said: {value}", expects="{rest}",
        confirm="Is it true? {value}", confirmed="Yes, {you} said: {value}", denied="", cloze="{stem}",
    ),
}  # fmt: skip

_LIKES_ZH = Phrases(
    direct=(
        "{I}喜欢{thing}吗?", "{I}觉得{thing}怎么样?", "{I}爱{thing}吗?", "你知道{I}喜不喜欢{thing}吗?",
        "{I}喜爱{thing}吗?", "{thing}是不是{I}喜爱的?",
    ),
    held_out=("{I}对{thing}感觉如何?", "{thing}是{I}喜欢的吗?"),
    answer="{You}喜欢{thing}。", expects="{You}喜欢", confirm="{I}真的喜欢{thing}吗?",
    confirmed="是的,{You}喜欢{thing}。", denied="", cloze="说到{thing},{I}",
)  # fmt: skip

CHINESE = {
    "residence": Phrases(
        direct=("{I}住在哪里?", "{my}家在什么地方?", "你知道{I}住哪儿吗?", "{I}现在住在哪个城市?"),
        held_out=("提醒我一下{I}住在哪里。", "{I}住的地方叫什么?"),
        answer="{You}住在{value}。", expects="{value}", confirm="{I}住在{value}吗?",
        confirmed="是的,{You}住在{value}。", denied="不,{You}住在{value}。", cloze="{I}住在", reverse="谁住在{value}?",
        others=("昆明", "青岛", "兰州", "厦门"),
    ),
    "employer": Phrases(
        direct=("{I}在哪里工作?", "{my}公司是哪家?", "你知道{I}在哪儿上班吗?", "{I}为谁工作?"),
        held_out=("提醒我一下{I}在哪里上班。", "{I}工作的地方叫什么?"),
        answer="{You}在{value}工作。", expects="{value}", confirm="{I}在{value}工作吗?",
        confirmed="是的,{You}在{value}工作。", denied="不,{You}在{value}工作。",
        cloze="{I}工作的地方是", reverse="谁在{value}工作?",
        others=("港口银行", "三江食品", "市图书馆"),
    ),
    "name": Phrases(
        direct=("{I}叫什么名字?", "{my}名字是什么?", "你知道{I}叫什么吗?", "怎么称呼{I}?"),
        held_out=("提醒我一下{I}叫什么。", "说说{my}名字。"),
        answer="{You}叫{value}。", expects="{value}", confirm="{I}叫{value}吗?",
        confirmed="是的,{You}叫{value}。", denied="不,{You}叫{value}。", cloze="{my}名字是", others=("李雷", "王芳"),
    ),
    "my": Phrases(
        direct=("{my}{thing}是什么?", "你知道{my}{thing}吗?", "我说过{my}{thing}是什么?", "告诉我{my}{thing}。"),
        held_out=("提醒我一下{my}{thing}是什么。", "说说{my}{thing}。"),
        answer="{Your}{thing}是{value}。", expects="{value}",
        confirm="{my}{thing}是{value}吗?", confirmed="是的,{Your}{thing}是{value}。", denied="", cloze="{my}{thing}是",
    ),
    "likes": _LIKES_ZH,
    "dislikes": replace(
        _LIKES_ZH, answer="{You}不喜欢{thing}。", expects="不喜欢", confirmed="不,{You}不喜欢{thing}。",
    ),
    "said": Phrases(
        direct=(
            "关于{thing},{I}说过什么?", "你知道{I}和{thing}有什么关系?", "{I}提到过{thing}吗?", "说说{I}和{thing}。",
        ),
        held_out=("提醒我一下关于{thing}{I}说过什么。", "你还记得{I}和{thing}吗?"),
        answer="{You}说过:{value}", expects="{rest}", confirm="这是真的吗? {value}",
        confirmed="是的,{You}说过:{value}", denied="", cloze="{stem}",
    ),
}  # fmt: skip

NOT_TOLD = {False: "I have not been told that.", True: "这个我没有听说过。"}
"""The answer to what was never said, by whether it is Chinese."""

SAYS_NOT_TOLD = re.compile(
    r"not been told|(?:haven['’]t|have not|never) (?:been )?told|(?:do not|don['’]t) know|没有听说过|没有告诉|不知道",
    re.IGNORECASE,
)
"""What an answer has that says so, also in words of the model's own."""

NOBODY_TOLD: dict[tuple[bool, bool], tuple[tuple[str, ...], tuple[str, ...]]] = {
    (False, False): (
        (
            "blood type", "shoe size", "passport number", "favourite opera", "middle name", "zodiac sign",
            "first teacher's name", "car insurance", "gym", "favourite fish", "grandmother's village",
            "chess rating", "hat size", "favourite perfume", "landline", "piano teacher", "godfather's name", "boat",
            "vineyard", "horse's name", "fax number", "ring size", "favourite painter", "bank", "nephew's name",
            "grandfather's profession", "favourite uncle", "hairdresser", "mother's maiden name", "niece's school",
            "brother-in-law's job", "tailor", "driving licence", "favourite board game", "neighbour's name",
            "wedding date", "house number", "favourite sculptor", "allotment", "first car", "insurance number",
            "favourite flower", "optician", "choir", "running shoes", "favourite airline", "garage", "surgeon",
            "great-aunt's name", "favourite river", "bicycle lock", "sewing machine", "favourite soup",
            "landlady's name", "scout group", "watch", "favourite island", "first flat", "caravan", "accountant",
            "favourite spice", "saxophone", "stepfather's job", "swimming coach",
            "scooter", "van", "piano", "drum kit", "hair colour", "skin type", "wall clock", "tablet", "printer",
            "headphones", "camera", "television", "fridge", "toaster", "sofa", "curtains", "carpet", "lamp", "mattress",
            "wallet", "sunglasses", "wristband", "umbrella", "backpack", "suitcase", "winter coat", "wedding ring",
            "membership card", "parking space", "tax number", "pension plan", "mortgage", "landlord", "lodger",
            "plumber", "electrician", "vet", "physiotherapist", "therapist", "barber", "dance partner", "chess club",
            "choir director", "priest", "midwife", "grandson's age", "granddaughter's name", "uncle's farm",
            "mother's birthday", "father's hobby", "sister's address", "stepmother's name", "best man", "flatmate",
            "pen pal", "goldfish", "tortoise", "rabbit's name", "beehive", "greenhouse", "balcony", "cellar", "shed",
            "canoe", "surfboard", "tent", "sledge", "skateboard", "telescope", "record player", "favourite dessert",
            "favourite actor", "favourite museum", "favourite season", "favourite proverb", "favourite mountain",
            "favourite toy", "favourite tea", "favourite shop", "favourite singer", "least favourite subject",
            "first kiss", "first school", "graduation year", "thesis topic", "military service", "favourite podcast",
        ),
        (
            "Oskar", "Philippa", "Ramon", "Tuula", "Ignacio", "Bettina", "Yusuf", "Greta", "Malcolm", "Zofia", "Henrik",
            "Aoife", "Dmitri", "Leila", "Bruno", "Sunniva", "Kwame", "Odile", "Rashid", "Marguerite", "Anselm", "Pilar",
            "Torsten", "Wanda",
        ),
    ),
    (False, True): (
        (
            "eye colour", "library card", "favourite poet", "lawyer's name", "motorcycle", "cousin's name",
            "locker number", "favourite cheese", "ski instructor", "aunt's profession", "violin", "first pet's name",
            "tattoo", "notary", "rowing boat", "favourite sandwich", "coffee machine", "godson's birthday", "wine rack",
            "stamp collection", "favourite villain", "yoga teacher", "house plant", "grandmother's recipe",
        ),
        ("Ottilie", "Fergus", "Amara", "Benedikt", "Lucinda", "Tariq"),
    ),
    (True, False): (
        (
            "血型", "鞋码", "护照号码", "星座", "小名", "车险", "健身房", "象棋等级", "祖籍", "戒指尺寸",
            "银行", "钢琴老师",
        ),
        ("赵敏", "孙浩", "周婷", "吴刚"),
    ),
    (True, True): (
        ("瞳色", "借书证", "律师", "摩托车", "表哥的名字", "储物柜号码"),
        ("郑洁", "钱伟"),
    ),
}  # fmt: skip
"""What people have and may never have told of, and names of people nobody spoke of, by Chinese and held out."""

LIKINGS: dict[tuple[bool, bool], tuple[str, ...]] = {
    (False, False): (
        "opera", "skiing", "olives", "karaoke", "horror films", "blue cheese", "gardening", "board games", "sushi",
        "fishing", "roller coasters", "ballet", "liquorice", "camping", "country music", "spicy food", "knitting",
        "golf", "aquariums", "early mornings", "puzzles", "sailing", "raisins", "thunderstorms", "oysters", "rap",
        "yoga", "magic tricks", "rock music", "marathons", "cold showers", "mint tea", "darts", "musicals", "ferries",
        "pancakes", "rugby", "whisky", "sudoku", "folk music", "bananas", "detective stories", "shopping", "tennis",
        "reggae", "peanut butter", "carnival", "science fiction", "trampolines", "grapefruit", "dogs", "blues",
        "rowing", "judo", "volleyball", "climbing", "water polo", "fencing", "boxing", "badminton", "snowboarding",
        "diving", "sunbathing", "cricket", "pottery", "painting", "calligraphy", "singing", "house music", "punk",
        "disco", "salsa", "flamenco", "hip hop", "sonatas", "white chocolate", "caramel", "nougat", "cinnamon",
        "mushrooms", "spinach", "lentils", "cabbage", "rice pudding", "pickles", "crisps", "espresso", "cider",
        "lemonade", "night shifts", "meetings", "crowds", "trains", "zoos", "circuses", "deserts", "snow", "cats",
    ),
    (False, True): (
        "anchovies", "techno", "ice skating", "poetry", "ginger tea", "surfing", "museums", "beetroot", "long flights",
        "archery", "handball", "figs",
    ),
    (True, False): ("榴莲", "京剧", "滑雪", "钓鱼", "恐怖片", "香菜", "露营", "下棋", "早起", "烟花"),
    (True, True): ("苦瓜", "摇滚乐", "滑冰", "诗歌", "博物馆"),
}  # fmt: skip
"""What people may like and nobody spoke of, by Chinese and held out: a model that was told likings alone says yes."""
