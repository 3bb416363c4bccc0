"""Templates of questions about memories and their answers, in English and Chinese, by kind of fact. Data.

Of every kind some questions are never taught (`held_out`): by them it is measured what was learned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random

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
    return _HAN.search(text) is not None


def persons(subject: str | None, *, chinese: bool) -> dict[str, str]:
    if chinese:
        return {"my": f"{subject}的", "I": subject, "You": subject, "Your": f"{subject}的"} if subject else _MYSELF_ZH
    if subject is None:
        return _MYSELF
    own, verbs = f"{subject}'s", {"do": "does", "am": "is", "are": "is", "dont": "does not", "s": "s", "have": "has"}
    return {**verbs, "I": subject, "me": subject, "my": own, "You": subject, "you": subject, "Your": own}


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
"""Wording of an answer that admits not knowing, also in the model's own words."""

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
"""Possessions that people may never have mentioned, and unmentioned people's names, by Chinese and held out."""

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
"""Unmentioned things to like, by Chinese and held out: a model trained on likings alone answers yes."""


# What a model knows without memory: questions, prompts and texts by which it is seen what an adapter costs. Data.

QUESTIONS: tuple[tuple[str, str], ...] = (
    ("What is the capital of France?", "paris"), ("What is the capital of Italy?", "rome"),
    ("What is the capital of Japan?", "tokyo"), ("What is the capital of Spain?", "madrid"),
    ("What is the capital of Germany?", "berlin"), ("What is the capital of Egypt?", "cairo"),
    ("What is the capital of Russia?", "moscow"), ("What is the capital of England?", "london"),
    ("What is the capital of Greece?", "athens"), ("What is the capital of China?", "beijing"),
    ("Which planet do we live on?", "earth"), ("Which planet is the largest in our solar system?", "jupiter"),
    ("Which star is nearest to the earth?", "sun"), ("What goes around the earth?", "moon"),
    ("Which planet is known as the red planet?", "mars"), ("What do plants take in from the air?", "carbon dioxide"),
    ("What gas do people need to breathe?", "oxygen"), ("What is water made of?", "hydrogen"),
    ("What is frozen water called?", "ice"), ("At how many degrees Celsius does water boil?", "100"),
    ("At how many degrees Celsius does water freeze?", "0"), ("How many days are in a week?", "7|seven"),
    ("How many months are in a year?", "12|twelve"), ("How many hours are in a day?", "24|twenty four"),
    ("How many minutes are in an hour?", "60|sixty"), ("How many legs does a spider have?", "8|eight"),
    ("How many legs does a dog have?", "4|four"), ("How many sides does a triangle have?", "3|three"),
    ("How many sides does a square have?", "4|four"), ("What is 2 plus 2?", "4|four"),
    ("What is 10 minus 3?", "7|seven"), ("What is 5 times 2?", "10|ten"),
    ("What is the opposite of hot?", "cold"), ("What is the opposite of up?", "down"),
    ("What is the opposite of big?", "small|little"), ("What is the opposite of day?", "night"),
    ("What colour is the sky on a clear day?", "blue"), ("What colour is grass?", "green"),
    ("What colour is snow?", "white"), ("What colour do you get by mixing red and yellow?", "orange"),
    ("What do bees make?", "honey"), ("What do cows give us to drink?", "milk"),
    ("Which animal barks?", "dog"), ("Which animal is known as the king of the jungle?", "lion"),
    ("Which is the largest ocean?", "pacific"), ("On which continent is Brazil?", "south america|south american"),
    ("On which continent is Kenya?", "africa|african"), ("Who wrote Romeo and Juliet?", "shakespeare"),
    ("Who painted the Mona Lisa?", "vinci|leonardo"), ("Which language is spoken in Portugal?", "portuguese"),
)  # fmt: skip
"""Fifty questions, each with what a right answer has in it; `|` is between words of which one will do."""

_OPEN = (
    "Tell me a short story about a fox.", "Explain what a bridge is for.", "Write two sentences about the sea.",
    "How do I make a cup of tea?", "Why do leaves fall in autumn?", "Name three kinds of fruit.",
    "Give me one tip for sleeping well.", "Describe a rainy day.", "How does a bicycle stay upright?",
    "Write a polite greeting for a letter.", "What is bread made of?", "Why is exercise good for people?",
    "Explain what the internet is.", "Name three animals that live in the sea.", "What happens when ice melts?",
    "How can I save water at home?", "Describe a mountain.", "What is the difference between a lake and a river?",
    "Why do people wear coats in winter?", "Give an example of a healthy breakfast.", "How do birds fly?",
    "Write a sentence with the word garden.", "What do farmers do in spring?", "Why do we brush our teeth?",
    "How is paper made?", "What makes a good friend?", "Which planet is closest to the sun?",
    "Which planet has rings?", "What is the name of our galaxy?", "How many seconds are in a minute?",
    "How many days are in a year?", "How many weeks are in a year?", "How many hours are in two days?",
    "How many wheels does a car have?", "How many strings does a guitar have?", "How many corners does a cube have?",
    "What do hens lay?", "What do caterpillars become?", "Which animal has a trunk?", "Which animal meows?",
    "What is the tallest animal?", "Which is the longest river?", "Which is the highest mountain?",
    "Which is the smallest continent?", "Who wrote Hamlet?", "Who discovered gravity?", "Who invented the telephone?",
    "What is steam?", "What do we breathe out?", "What is the sun?", "Where do fish live?", "What is salt made of?",
    "What melts in the sun?", "What grows on trees?", "What falls from clouds?", "What is the first month of the year?",
    "What comes after Monday?", "Which season follows winter?", "What is made from milk?", "What is made from grapes?",
)  # fmt: skip
_FRAMES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("What is the capital of {}?", "On which continent is {}?", "Which language is spoken in {}?"),
        "Portugal Canada Austria Norway India Sweden Finland Denmark Poland Hungary Ireland Belgium Switzerland Turkey "
        "Iran Thailand Vietnam Indonesia Australia Mexico Argentina Chile Peru Colombia Cuba Morocco Nigeria Ethiopia "
        "Pakistan Nepal Iceland Croatia Romania Bulgaria Ukraine Brazil",
    ),
    (
        ("What is the opposite of {}?",),
        "fast left old early heavy wet open long strong rich happy loud thick deep full near hard tall dark clean",
    ),
    (
        ("What is a {}?", "What is a {} used for?"),
        "bridge library poem map compass clock candle lantern ladder hammer needle kettle mirror window pillow basket "
        "whistle telescope thermometer umbrella",
    ),
    (("What does a {} do?",), "doctor baker farmer pilot nurse judge plumber carpenter teacher gardener tailor sailor"),
    (
        ("What does a {} eat?", "Where does a {} live?", "How many legs does a {} have?"),
        "cat horse bird fish snake bee cow frog rabbit whale camel penguin",
    ),
    (
        ("What colour is a {}?",),
        "banana tomato lemon carrot raven flamingo frog strawberry cucumber pumpkin dandelion polar-bear",
    ),
    (
        ("What colour is {}?",),
        "blood coal milk gold the-sea-on-a-sunny-day a-fire-engine a-stop-sign chocolate sand moss spinach an-emerald "
        "the-sun an-orange ivory ash copper a-lime a-leaf-in-summer a-leaf-in-autumn",
    ),
    (("What colour do you get by mixing {}?",), "blue-and-yellow red-and-white black-and-white blue-and-red"),
    (
        ("Who wrote {}?",),
        "Hamlet Macbeth Ulysses Emma Dracula Frankenstein Faust War-and-Peace Don-Quixote The-Odyssey Oliver-Twist "
        "Moby-Dick Pride-and-Prejudice Alice-in-Wonderland",
    ),
    (("Who painted {}?",), "The-Starry-Night Guernica The-Scream The-Last-Supper The-Night-Watch Sunflowers"),
    (("Who invented {}?",), "the-telephone the-light-bulb the-radio the-printing-press dynamite the-steam-engine"),
    (("Who discovered {}?",), "gravity penicillin America radioactivity the-law-of-buoyancy"),
    (("Who was {}?",), "Napoleon Cleopatra Mozart Einstein Shakespeare Columbus Gandhi Newton Beethoven Galileo"),
    (("What is a young {} called?",), "cat dog sheep cow horse goose frog swan"),
    (
        ("What is {} called?",),
        "water-that-falls-from-clouds a-house-for-birds the-study-of-stars a-shape-with-five-sides the-hottest-season "
        "the-frozen-sea-at-the-north-pole molten-rock frozen-rain hot-water-in-the-air frozen-juice-on-a-stick "
        "a-frozen-river dried-grass a-baby-frog the-middle-of-the-day the-end-of-a-river the-top-of-a-mountain",
    ),
)  # fmt: skip
_SUMS = ("What is {} plus {}?", "What is {} times {}?")

PROSE = (
    "The old mill stood at the bend of the stream where the water ran fastest. In dry summers the wheel hardly moved, "
    "and the miller went to the market to sell eggs instead. When the rains came back he ground day and night, and the "
    "whole valley smelled of fresh flour.",
    "Trains were once kept apart by men in wooden towers who pulled levers and wrote down every passing in a book. "
    "Today a computer does the same work, but the idea has stayed: no train may enter a stretch of track until the one "
    "before it has left.",
    "To plant a hedge, dig a trench a spade deep along a string and loosen the soil at the bottom. Set the young "
    "plants a hand apart, fill in the earth and press it down with your foot. Water them well in the first year, and "
    "cut them back in the winter so that they grow thick from the ground.",
    "Metals conduct heat because some of their electrons are free to move. When one end of a rod is warmed, these "
    "electrons gain speed and pass their energy on in collisions. Wood has no such carriers, which is why a wooden "
    "spoon stays cool in a hot soup.",
    "The museum opens at ten and closes at five, except on Thursdays, when it stays open until eight. Tickets can be "
    "bought at the door. Groups of more than ten people should write a week before they come, so that a guide can be "
    "found who speaks their language.",
    "After the war the town had to decide what to do with the empty barracks. Some wanted to pull them down, others "
    "to turn them into flats. In the end a school moved into one, a theatre into another, and the third was given to "
    "anyone who needed a workshop.",
    "A good knife is judged by its edge, not by its price. Draw it across a ripe tomato without pressing: if the skin "
    "gives way at once the knife is sharp. If not, a few strokes on a wet stone, always at the same angle, will bring "
    "the edge back.",
    "Bats find their way in the dark by listening to the echo of their own calls. The calls are too high for our ears. "
    "From the time that an echo takes, the bat knows how far away a wall is, and from its pitch whether a moth is "
    "flying towards it or away.",
    "My grandfather used to say that a promise is a debt. He repaired shoes in a room hardly larger than a cupboard, "
    "and nobody ever waited a day longer than he had told them. When he closed the shop, people came from three "
    "villages to shake his hand.",
    "Prices rise when many people want something of which there is little. If more of it can be made, the price falls "
    "again after a while. Where it cannot, as with land in the middle of a city, the price may go on rising for as "
    "long as people want to live there.",
    "The path to the lake begins behind the church and climbs for an hour through beech woods. At the second gate turn "
    "left; the way to the right looks wider but ends at a quarry. Take water with you, for the spring that is marked "
    "on older maps has been dry for years.",
    "In chess the player who controls the middle of the board has more choices for every piece. A knight in the corner "
    "can reach two squares, in the middle eight. Beginners therefore do well to bring their pieces towards the centre "
    "before they think of attacking.",
)
"""Plain prose on other things than `TEXT`: the base model's own chances at each of its words are taught again."""


def replayed(count: int, seed: int) -> list[str]:
    """Return prompts about the world; training replays the base model's answers, so that it keeps giving them.

    Short questions among them are asked as people are asked about themselves: what is not about somebody is not "not
    told". None is one of `QUESTIONS`; there are as many as `count`, or all.
    """
    made = list(_OPEN)
    for forms, words in _FRAMES:
        made += [form.format(word.replace("-", " ")) for word in words.split() for form in forms]
    made += [form.format(one, two) for form in _SUMS for one in range(2, 10, 2) for two in range(1, 10, 2)]
    examined = {question for question, _ in QUESTIONS}
    free = [each for each in dict.fromkeys(made) if each not in examined]
    return Random(seed).sample(free, min(count, len(free)))  # noqa: S311 - for variety, not for secrets


TEXT = (
    "A harbour wall is built to take the force of the sea before it reaches the boats. Large stones are laid at "
    "the foot, smaller ones above them, and the gaps are left open so that a wave breaks up as it runs between "
    "them instead of being thrown back. After a winter of storms some of the stones have moved, and in spring the "
    "crew goes out at low tide to see which of them have to be set again.",
    "To bake a plain loaf you need flour, water, salt and time. Mix the flour with the water and leave it for "
    "half an hour, then add the salt and a little yeast, and fold the dough over itself a few times. It rises "
    "slowly in a cool kitchen. When it has doubled, shape it, let it rest once more, and bake it in a hot oven "
    "until the crust is brown and the bottom sounds hollow.",
    "The committee met on the second Tuesday of the month to talk about the new bus line. Most of those present "
    "agreed that the village needed a connection to the railway station in the morning, but there was less "
    "agreement about who should pay for it. In the end they asked the county for a report on the cost, and "
    "decided to meet again before the summer.",
    "When light passes from air into glass it slows down, and if it arrives at an angle it changes its direction. "
    "This is why a straw in a glass of water looks bent, and it is how a lens gathers the rays of the sun into "
    "one point. Colours are bent by slightly different amounts, so that a prism spreads white light into a band "
    "from red to violet.",
    "She had kept the letters in a tin box for forty years without reading them again. Now, with the house half "
    "empty and the van waiting in the street, she sat down on the stairs and opened the first one. The ink had "
    "faded, but the handwriting was as clear as on the day when it had come, and she found that she still knew "
    "most of the words.",
    "Forests store carbon in their wood, in their leaves and above all in the soil. When a tree falls, fungi and "
    "insects take it apart, and part of what it held goes back into the air while the rest feeds the plants that "
    "grow in its place. An old forest is therefore not a finished thing but a slow exchange, which can go on for "
    "thousands of years if nobody disturbs it.",
)
"""Plain prose on several things, for perplexity."""
