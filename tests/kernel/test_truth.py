"""What is true now comes first, corrections do what they say, and nothing replaced speaks through its neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from memos import MemOS
from memos.core.types import REPLACING, LinkKind, Outcome, Standing, Status
from memos.errors import InvalidInput, NotFound
from tests.support.telling import BEGAN, tell


@pytest.fixture
def memos(tmp_path: Path) -> Iterator[MemOS]:
    """An installation with the default embedder: what replaces what is judged by its vectors."""
    with MemOS.open(tmp_path) as opened:
        yield opened


def first(memos: MemOS, question: str, cube: str = "default") -> str:
    return memos.search(question, cubes=[cube], reference_time=BEGAN + timedelta(days=60)).hits[0].item.memory


CHANGES = [
    ("I live in Paris.", "I moved to Lyon.", "Where does she live?"),
    ("I work at Siemens.", "I started a new job at Bosch.", "Where does he work?"),
    ("My dentist appointment is on 3 June.", "The dentist appointment was moved to 9 June.", "When is the dentist?"),
    ("The rent is 900 euros.", "The rent was raised to 980 euros.", "How much is the rent?"),
    ("The service listens on port 8080.", "The service listens on port 9090 now.", "Which port does the service use?"),
    ("The report is due on 5 May.", "The report's deadline was extended to 20 May.", "When is the report due?"),
    ("We build with Jenkins.", "We migrated our builds to GitHub Actions.", "What do they build with?"),
    ("I weigh 82 kg.", "I'm down to 76 kg.", "What does he weigh?"),
    ("We fly to Oslo on Friday.", "Our flight to Oslo was cancelled.", "Are they flying to Oslo?"),
    ("I drive a Golf.", "I sold the Golf and bought a Tesla.", "What car does she drive?"),
    ("I drive a Golf.", "I drive a Tesla now.", "What car does she drive?"),
    ("I write my notes in Vim.", "These days I write my notes in Emacs.", "What does he write notes in?"),
    ("We're going to Rome in May.", "The Rome trip is off, my sister is ill.", "Are they going to Rome?"),
    ("Wir wohnen in Bremen.", "Der Umzug ist geschafft, wir sind jetzt in Jena.", "Wo wohnen sie?"),
    ("My colleague Priya lives in Malmö.", "Priya moved to Porto.", "Where does Priya live?"),
    ("Our landlord is called Mr. Petrov.", "Our landlord is Mrs. Yilmaz now.", "Who is our landlord?"),
    ("My sister Vera's phone is a Nokia.", "Vera's phone is now a Pixel.", "What phone does Vera have?"),
    ("I moved my notes from Bear to Joplin.", "I moved my notes from Joplin to Notion.", "Which app has my notes?"),
    ("We travel to Slovenia in May.", "We swapped the trip to Slovenia for one to Scotland.", "Where do we travel?"),
    ("Anna is our team lead.", "Since Monday Ted is our team lead.", "Who is our team lead?"),
    ("I'm a junior analyst at the bank.", "I've been promoted to senior analyst.", "What is my job title?"),
    ("I go to bed at midnight.", "These days I'm asleep by half past ten.", "When do I go to bed?"),
    ("We have a cat called Tiger.", "Tiger died last week.", "How is Tiger?"),
    ("My insulin dose is 10 units.", "My insulin was cut to 8 units.", "What is my insulin dose?"),
    ("My bus leaves at 7:40.", "The new timetable has my bus at 7:52.", "When does my bus leave?"),
    ("I'm writing my thesis.", "I handed in my thesis.", "How is my thesis going?"),
    ("The server has 16 GB of memory.", "The server's memory was doubled.", "How much memory does the server have?"),
    ("I'm together with Sam.", "Sam and I broke up.", "Am I together with Sam?"),
    ("I'm on a low-carb diet.", "I gave up the low-carb diet.", "Am I on a diet?"),
    ("I live in Lyon.", "I moved back to Paris.", "Where do I live?"),
    ("The board meets every month.", "The board only meets once a quarter now.", "How often does the board meet?"),
    ("I lent my drill to Tom.", "Tom brought the drill back.", "Who has my drill?"),
    ("I drive a Toyota Yaris.", "My new car is a Skoda.", "What car does she drive?"),
    ("HR changed my title from team lead to release manager.", "They promoted me to product owner.", "What is my job?"),
    ("I sold the Golf and live without a car.", "My car is a Kia Niro.", "Do I have a car?"),
    ("I've started to learn Japanese.", "The language I'm learning is Basque.", "Which language am I learning?"),
    ("I live in Paris.", "Lives in Lyon.", "Where does she live?"),
    ("I work at Siemens.", "Working at Bosch these days.", "Where does he work?"),
    ("我住在北京。", "我搬到上海了。", "我住在哪里？"),
    ("我在华为上班。", "我跳槽到小米了。", "我在哪里上班？"),
    ("我们五一去青岛。", "青岛不去了，孩子发烧。", "五一去青岛吗？"),
    ("我每周三打羽毛球。", "羽毛球不打了，膝盖疼。", "我还打羽毛球吗？"),
]


@pytest.mark.parametrize(("old", "new", "question"), CHANGES)
def test_the_newer_of_two_statements_comes_first_as_soon_as_it_is_added(
    memos: MemOS, old: str, new: str, question: str
) -> None:
    tell(memos, old, "The printer is out of toner.", new, "It rained all weekend.")
    assert first(memos, question) == new


BOOKED_AGAIN = [
    ("I booked the hall for Friday.", "I booked the hall for Saturday.", "For which day is the hall booked?"),
    ("Vivo en Sevilla.", "Me mudé a Vigo.", "¿Dónde vivo?"),
]


@pytest.mark.parametrize(("old", "new", "question"), BOOKED_AGAIN)
def test_what_is_done_again_to_one_thing_replaces_what_was_done(
    memos: MemOS, old: str, new: str, question: str
) -> None:
    tell(memos, old, "The printer is out of toner.", new, "It rained all weekend.")
    assert first(memos, question) == new


GUARDS = [
    ("I live in Antwerp.", "My brother moved to Rome.", "Where does she live?"),
    ("My dentist is Dr. Fontaine.", "My sister is with Dr. Ruiz now.", "Who is her dentist?"),
    ("I drive a diesel Passat.", "Our neighbour bought an electric Ioniq.", "What car does he drive?"),
    ("I'm learning Finnish.", "My son started Swedish at school.", "Which language is she learning?"),
    ("I use Python at work.", "I use a standing desk now.", "Which programming language does she use?"),
    ("My friend Tomasz lives in Dresden.", "My friend Tomasz is mad about surfing now.", "Where does Tomasz live?"),
    ("My friend Tomasz has a Pixel 8.", "My friend Tomasz is mad about surfing now.", "Which phone does Tomasz have?"),
    ("我住在北京。", "我妹妹搬到上海了。", "我住在北京吗？"),
]


@pytest.mark.parametrize(("own", "other", "question"), GUARDS)
def test_what_changes_for_somebody_else_changes_nothing(memos: MemOS, own: str, other: str, question: str) -> None:
    tell(memos, own, other, "It rained all weekend.")
    assert first(memos, question) == own


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Room 3 is booked on Monday.", "Room 4 is booked on Friday."),
        ("Build 41 failed.", "Build 42 passed."),
        ("The queen of hive three is two years old.", "Hive five swarmed on 3 May."),
        ("Apartment 4B has a leak.", "Apartment 5C has no leak."),
        ("Version 2.1 of the library is broken.", "Version 2.2 of the library works."),
        ("Ticket 31: the login page is slow.", "Ticket 32: the login page is gone."),
        ("Zimmer 3 ist frei.", "Zimmer 4 ist jetzt belegt."),
    ],
)
def test_a_statement_about_another_number_of_a_thing_replaces_nothing(memos: MemOS, older: str, newer: str) -> None:
    first = memos.add(older).item_ids[0]
    memos.add(newer)
    assert memos.memories.relations(first) == ()
    assert memos.search(older).hits[0].item.id == first


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Hive five swarmed.", "I keep seven hives."),
        ("I keep seven hives.", "Hive five swarmed."),
        ("Room 4 has no heating.", "We have six rooms."),
        ("I drive a Golf.", "My sister drives a Polo."),
        ("I have no dog.", "My sister has a dog."),
        ("I keep seven hives behind the old chapel.", "The chapel gets a new roof in spring."),
        ("I work at the bakery on Main Street.", "The bakery has a new oven."),
        ("I keep seven hives.", "The hives need sugar in spring."),
        ("I play the cello.", "My cello has a crack."),
        ("The museum is free on Sundays.", "The zoo is no longer free on Sundays."),
        ("I like tea.", "I spilled tea on my new shirt."),
        ("I work at Bosch.", "Bosch opened a new plant in Cluj."),
        ("My dentist is Dr. Ruiz.", "My son's dentist is Dr. Lang."),
        ("The launch is on 12 March.", "The launch party is on 14 March."),
        ("My rent is 900 euros.", "The average rent here is 1100 euros."),
        ("The project is written in Go.", "The old project was written in PHP."),
        ("I wake up at 6.", "Yesterday I woke up at 9 because I was ill."),
        ("My passport is in the desk drawer.", "My passport expires in 2031."),
        ("I work at Bosch.", "I work from home on Mondays."),
        ("I live in Malmo.", "I live alone."),
        ("My rent is 900 euros.", "My rent is due on the first."),
        ("I bought a bike for my son.", "I bought a helmet for my daughter."),
        ("I bought new running shoes.", "I bought a new washing machine."),
        ("I planted tomatoes in the garden.", "I planted beans on the balcony."),
        ("I ordered a sofa from Ikea.", "I ordered a cake for Sunday."),
        ("I fixed the kitchen lamp.", "I ordered a new desk lamp."),
        ("I have a new number: 555-0199.", "I ordered a new desk lamp."),
        ("My address is 12 Hill Road.", "Send the parcel to my office at 8 Dock Street."),
        ("I take my coffee with oat milk now.", "Please make my coffee."),
        ("Deploys need two approvals.", "Hotfixes need one approval."),
        ("Acme is on the Pro plan.", "Globex is on the Basic plan."),
        ("My nephew Ole is shy.", "My nephew Ole is nine."),
        ("Our dog Bruno is a beagle.", "Our dog Bruno is four."),
        ("My neighbour has a dog.", "I don't have a dog."),
        ("My laptop is a ThinkPad.", "My work laptop is a MacBook."),
        ("My phone number is 555-0101.", "My office phone number is 555-0202."),
        ("We have a caravan.", "We sold the cottage."),
        ("We have a dog called Rolo.", "We also got a kitten called Pip."),
        ("Please plan our honeymoon in Bali.", "Bali has a rainy season from November on."),
        ("I have a dachshund.", "I finally cleaned the windows."),
        ("My boss is Ingrid.", "Since June Paul is my wife's boss."),
        ("Our cat Tiger is eight.", "Our neighbour's cat Simba died last week."),
        ("My brother smokes.", "I don't smoke any more."),
        ("Ich treffe mich mit Jonas in der Bibliothek.", "Die Bibliothek bekommt ein neues Dach."),
    ],
)
def test_what_is_said_of_a_part_or_a_thing_changes_nothing_else(memos: MemOS, older: str, newer: str) -> None:
    first = memos.add(older).item_ids[0]
    memos.add(newer)
    assert memos.search(older).hits[0].item.id == first
    assert memos.search(older).hits[0].standing == "current"


@pytest.mark.parametrize(
    ("older", "newer", "question"),
    [
        ("My doctor is Dr. Kim.", "My doctor is Dr. Lee.", "Who is my doctor?"),
        ("I run the Berlin office.", "I handed the Berlin office over to Petra.", "Who runs the Berlin office?"),
        ("I train for the Oslo run.", "I had to drop out of the Oslo run with a torn calf.", "Do I run in Oslo?"),
        ("Yesterday I paid 20 euros for a ticket.", "Tickets went up to 24 euros.", "What does a ticket cost?"),
        (
            "I aim to read 20 books this year.",
            "I raised my aim to 30 books.",
            "How many books do I aim to read this year?",
        ),
    ],
)
def test_what_is_handed_over_dropped_or_asked_of_this_year_is_found_as_it_is_now(
    memos: MemOS, older: str, newer: str, question: str
) -> None:
    memos.add(older)
    memos.add(newer)
    assert memos.search(question).hits[0].item.memory == newer


@pytest.mark.parametrize(
    ("older", "newer", "of_the_rest", "of_the_change"),
    [
        ("I live in Paris and work at Bosch.", "I moved to Lyon.", "Where do I work?", "Where do I live?"),
        (
            "My sister Eva is a nurse and my brother Max is a pilot.",
            "Max became a teacher.",
            "What is Eva's job?",
            "What is Max's job?",
        ),
        (
            "The API runs on port 8080 and the admin UI on 9090.",
            "The admin UI is on 9443 now.",
            "Which port is the API on?",
            "Which port is the admin UI on?",
        ),
        (
            "I take vitamin D in the morning and magnesium at night.",
            "I stopped taking magnesium.",
            "What do I take in the morning?",
            "Do I take magnesium?",
        ),
        (
            "Hi! I'm Ana, 34, from Porto, I work as a designer at Canva and love hiking.",
            "I started a new job at Figma last week.",
            "Where am I from?",
            "Where do I work?",
        ),
        (
            "I'm Leo, I live in Cork, I'm vegetarian and my rent is 700 euros.",
            "My rent is 760 euros now.",
            "Where do I live?",
            "What is my rent?",
        ),
        ("My car is a Golf, my bike is a Trek.", "I sold the Golf.", "What bike do I have?", "Do I have the Golf?"),
        (
            "Tom is my boss and Lisa is my mentor.",
            "Lisa left the company, my mentor is now Raj.",
            "Who is my boss?",
            "Who is my mentor?",
        ),
    ],
)
def test_what_changes_one_clause_leaves_the_others(
    memos: MemOS, older: str, newer: str, of_the_rest: str, of_the_change: str
) -> None:
    memos.add([older, "I bought bread and tomatoes."])
    memos.add(newer)
    assert memos.search(of_the_rest).hits[0].item.memory == older
    assert memos.search(of_the_change).hits[0].item.memory == newer


@pytest.mark.parametrize(
    ("older", "question"), [("I work at Bosch.", "Where do I work?"), ("I live in Paris.", "Where do I live?")]
)
def test_each_clause_of_a_new_statement_replaces_its_own(memos: MemOS, older: str, question: str) -> None:
    memos.add(older)
    newer = memos.add("I moved to Lyon and started at Figma.").item_ids[0]
    assert memos.search(question).hits[0].item.id == newer


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I work at Bosch.", "My friend Tom works at Siemens, he lives in Ulm."),
        ("I live in Oslo.", "If I lived in Rome, I would eat pizza every day."),
        ("I live in Oslo.", "We visited Rome, my sister lives there."),
        ("My best friend is called Priya, she lives in York.", "I moved in with Priya in York."),
        ("I got a new job, I'm a midwife at St James's now.", "I moved in with Priya in York."),
        ("Hi, I'm Nora, I'm 29 and I live in Leeds with my boyfriend Sam.", "Sam is allergic to nuts."),
    ],
)
def test_clauses_about_others_or_what_might_be_change_nothing(memos: MemOS, older: str, newer: str) -> None:
    first = memos.add(older).item_ids[0]
    memos.add(newer)
    assert memos.search(older).hits[0].item.id == first
    assert memos.search(older).hits[0].standing == "current"


def test_a_number_that_is_a_value_is_replaced(memos: MemOS) -> None:
    rent = memos.add("The rent is 500 euros a month.").item_ids[0]
    memos.add("The rent is 550 euros a month.")
    room = memos.add("Room 3 is booked until May.").item_ids[0]
    memos.add("Room 3 is booked until July.")
    assert [relation.older for relation in memos.memories.relations(rent)] == [rent]
    assert [relation.older for relation in memos.memories.relations(room)] == [room]


def test_a_question_about_before_gets_what_held_before(memos: MemOS) -> None:
    tell(
        memos, "The shop was called Leaf & Bean.", "The bus was late.", "We renamed the shop, it's called Morning Row."
    )
    assert first(memos, "What was the shop's old name?") == "The shop was called Leaf & Bean."
    assert "Morning Row" in first(memos, "What is the shop called?")


def test_a_question_about_what_was_first_gets_the_oldest(memos: MemOS) -> None:
    tell(memos, "I ran my first 10 km in May 2023.", "I ran 10 km in 52 minutes on Sunday.")
    assert first(memos, "When did I run my first 10 km?") == "I ran my first 10 km in May 2023."


def test_a_relation_is_kept_with_its_confidence_and_a_person_can_decide_it(memos: MemOS) -> None:
    old, new = tell(memos, "The rent is 900 euros.", "The rent was raised to 980 euros.")
    [found] = memos.memories.relations(new)
    assert (found.newer, found.older, found.kind, found.decided_by) == (new, old, LinkKind.UPDATES, "rules")
    assert 0.15 <= found.confidence <= 1

    [decided] = memos.review.decide(new, old, holds=False)
    assert (decided.confidence, decided.decided_by) == (0.0, "owner")
    assert first(memos, "How much is the rent?") in ("The rent is 900 euros.", "The rent was raised to 980 euros.")
    memos.update(new, "The rent went up to 980 euros.")
    [still] = memos.memories.relations(old)
    assert still.confidence == 0.0  # judged anew by rules, and what a person decided stands

    assert memos.memories.history(new)[-1].relations == (still,)
    explained = memos.search("How much is the rent?", explain=True)
    assert [hit.relations for hit in explained] == [(still,), (still,)]
    assert [hit.relations for hit in memos.search("How much is the rent?")] == [(), ()]
    assert all(not hit.relations for hit in memos.search("rent", explain=True, as_of=memos.clock.now()))

    with pytest.raises(InvalidInput):
        memos.review.decide(new, new, holds=True)
    with pytest.raises(NotFound):
        memos.review.decide(new, "00000000-0000-0000-0000-000000000000", holds=True)


def test_a_decision_stands_whatever_the_id_of_the_user_who_made_it(memos: MemOS) -> None:
    memos.users.create("rules")
    memos.cubes.create("own", actor="rules")
    [old] = memos.add("I live in Paris.", cube="own", actor="rules").item_ids
    [new] = memos.add("I moved to Lyon.", cube="own", actor="rules").item_ids
    memos.review.decide(new, old, holds=False, actor="rules")
    memos.maintenance.reindex()
    [still] = memos.memories.relations(new, actor="rules")
    assert (still.confidence, still.decided_by) == (0.0, "user rules")


def test_relations_go_with_the_items_that_are_erased(memos: MemOS) -> None:
    old, new = tell(memos, "The rent is 900 euros.", "The rent was raised to 980 euros.")
    memos.memories.erase([new])
    assert memos.memories.relations(old) == ()


EDITS = [
    (
        "Our cat is called Mochi and the dog is Rex.",
        "The cat is called Miso, not Mochi.",
        "Our cat is called Miso and the dog is Rex.",
    ),
    (
        "The project's budget is 10k and the lead is Marit.",
        "Wrong: the project's budget is 12k.",
        "The project's budget is 12k and the lead is Marit.",
    ),
    ("We met Hannah in Lisbon in 2018.", "It was 2016 when we met Hannah.", "We met Hannah in Lisbon in 2016."),
    (
        "The recipe needs 200 g of butter and four eggs.",
        "three eggs, not four",
        "The recipe needs 200 g of butter and three eggs.",
    ),
    (
        "Choir practice is on Wednesdays at the hall.",
        "Nope, choir practice is Thursdays.",
        "Choir practice is on Thursdays at the hall.",
    ),
    (
        "The meeting with Ann is on Tuesday at 10.",
        "Scratch that, the meeting with Ann is on Thursday.",
        "The meeting with Ann is on Thursday at 10.",
    ),
    ("我们项目的数据库是PostgreSQL。", "不对，数据库是MySQL，不是PostgreSQL。", "我们项目的数据库是MySQL。"),
    (
        "Mein Zug nach Kiel fährt um 9:12 von Gleis 5.",
        "Nein, nach Kiel ist es Gleis 8.",
        "Mein Zug nach Kiel fährt um 9:12 von Gleis 8.",
    ),
    ("Mi perro se llama Toby.", "El perro se llama Tomás, no Toby.", "Mi perro se llama Tomás."),
    ("My brother works at Aldi.", "No, he works at Lidl.", "My brother works at Lidl."),
    ("Meine Schwester wohnt in Bonn.", "Sie wohnt in Köln.", "Meine Schwester wohnt in Köln."),
    ("My parents live in Graz.", "They moved to Linz.", "My parents live in Linz."),
    ("Our dog Bruno is four.", "No, he is five.", "Our dog Bruno is five."),
    ("The dinner is on Friday.", "No, it's on Saturday.", "The dinner is on Saturday."),
]


@pytest.mark.parametrize(("said", "correction", "edited"), EDITS)
def test_a_correction_edits_the_one_detail_and_rollback_undoes_it(
    memos: MemOS, said: str, correction: str, edited: str
) -> None:
    [item, _] = tell(memos, said, "The printer is out of toner.")
    receipt = memos.feedback(correction, speaker="Sam")
    assert (receipt.outcome, receipt.edited) == (Outcome.EDITED, (item,))
    assert memos.get(item).memory == edited
    assert receipt.item_id not in {hit.item.id for hit in memos.search(correction).hits}  # its content is in the edit
    memos.memories.rollback(item)
    assert memos.get(item).memory == said


def test_what_ended_or_was_replaced_as_a_whole_is_superseded(memos: MemOS) -> None:
    [fasting, ci, _] = tell(memos, "I'm trying intermittent fasting.", "Our builds run on Jenkins.", "I slept badly.")
    ended = memos.feedback("I'm not fasting any more", speaker="Sam")
    assert (ended.outcome, ended.superseded) == (Outcome.ENDED, (fasting,))
    [finnish] = tell(memos, "I'm learning Finnish.", cube="default")
    assert memos.feedback("I don't learn Finnish any more.", speaker="Sam").outcome is Outcome.ENDED
    replaced = memos.feedback("We build everything with hosted runners of GitHub these days", item_ids=[ci])
    assert (replaced.outcome, replaced.superseded) == (Outcome.SUPERSEDED, (ci,))
    assert {memos.get(old).status for old in (fasting, ci, finnish)} == {Status.SUPERSEDED}
    assert memos.memories.rollback(fasting).status is Status.ACTIVE


FORGETS = [
    ("I'm allergic to peanuts.", "Forget that I'm allergic to peanuts.", "What is she allergic to?"),
    ("My salary is 43,500 before tax.", "forget my salary", "What is her salary?"),
    ("我的工资是两万五。", "把我工资的事忘掉。", "他的工资是多少？"),
    ("Mein Kontostand ist 12.400 Euro.", "Vergiss bitte meinen Kontostand.", "Wie hoch ist der Kontostand?"),
]


@pytest.mark.parametrize(("said", "request_", "question"), FORGETS)
def test_what_is_to_be_forgotten_is_not_found_any_more_nor_is_the_request(
    memos: MemOS, said: str, request_: str, question: str
) -> None:
    [item, other] = tell(memos, said, "Ben is allergic to pollen.")
    receipt = memos.feedback(request_, speaker="Sam")
    assert (receipt.outcome, receipt.forgotten) == (Outcome.FORGOTTEN, (item,))
    found = {hit.item.id for hit in memos.search(question).hits}
    assert found <= {other}
    assert memos.memories.rollback(item).memory == said


FORGETS_A_PART = [
    ("I live in Bath. I'm allergic to peanuts.", "Forget that I'm allergic to peanuts.", "I live in Bath."),
    ("Mein Gehalt ist 4.300 Euro. Ich wohne in Bonn.", "Vergiss bitte mein Gehalt.", "Ich wohne in Bonn."),
    ("我的工资是两万五。我住在成都。", "把我工资的事忘掉。", "我住在成都。"),
]


@pytest.mark.parametrize(("said", "request_", "kept"), FORGETS_A_PART)
def test_of_a_message_that_says_more_the_rest_is_kept(memos: MemOS, said: str, request_: str, kept: str) -> None:
    [item] = tell(memos, said)
    receipt = memos.feedback(request_, speaker="Sam")
    assert (receipt.outcome, receipt.edited, receipt.forgotten) == (Outcome.FORGOTTEN, (item,), ())
    assert memos.get(item).memory == kept
    assert memos.memories.rollback(item).memory == said


@pytest.mark.parametrize(
    ("said", "correction"),
    [
        (["My neighbour has a dog."], "I don't have a dog."),
        (["My brother smokes."], "I don't smoke any more."),
        (["My friend Petra has the flu."], "I don't have the flu."),
        (["The dinner is on Friday.", "The exam is on Friday."], "It's on Saturday, not Friday."),
        (["The haircut is at 3.", "The vet appointment is at 3."], "No, it's at 4, not 3."),
        (["My sister lives in Rome.", "My cousin lives in Oslo."], "No, she lives in Milan."),
    ],
)
def test_what_is_said_of_somebody_else_or_could_mean_several_changes_nothing(
    memos: MemOS, said: list[str], correction: str
) -> None:
    ids = tell(memos, *said)
    receipt = memos.feedback(correction, speaker="Sam")
    assert receipt.outcome is (Outcome.ADDED if len(said) == 1 else Outcome.NEEDS_REVIEW)
    assert [memos.get(id_).memory for id_ in ids] == said
    assert {memos.get(id_).status for id_ in ids} == {Status.ACTIVE}


def test_what_a_correction_replaced_answers_questions_about_before(memos: MemOS) -> None:
    tell(memos, "I live in Lille.", "My car needs new tyres.")
    memos.feedback("I moved to Nice.", speaker="Sam")
    memos.feedback("I moved to Brest.", speaker="Sam")
    assert first(memos, "Where did I live before Brest?") == "I moved to Nice."
    assert first(memos, "Where did I live originally?") == "I live in Lille."
    found = {hit.item.memory: hit.standing for hit in memos.search("Where did I live before Brest?").hits}
    assert found["I moved to Nice."] == Standing.REPLACED
    assert "I live in Lille." not in {hit.item.memory for hit in memos.search("Where do I live?").hits}


def test_what_concerns_nothing_is_added_and_in_doubt_both_stay(memos: MemOS) -> None:
    [anna, bea, _] = tell(
        memos, "Anna's train arrives at nine and she stays a week.", "Bea's train arrives at ten.", "I slept badly."
    )
    added = memos.feedback("also, the gate code has a # at the end")
    assert (added.outcome, added.superseded, added.edited) == (Outcome.ADDED, (), ())
    doubt = memos.feedback("her train arrives at eleven")
    assert doubt.outcome is Outcome.NEEDS_REVIEW
    assert set(doubt.runners_up) >= {anna, bea}
    assert {memos.get(each).status for each in (anna, bea, doubt.item_id)} == {Status.ACTIVE}
    [waiting] = memos.review.relations()
    assert (waiting.newer, waiting.decided_by) == (doubt.item_id, "feedback")
    memos.review.decide(waiting.newer, waiting.older, holds=True)
    assert memos.review.relations() == ()


def test_a_request_to_forget_what_is_not_known_is_not_remembered(memos: MemOS) -> None:
    [kept] = tell(memos, "The bus was late.")
    receipt = memos.feedback("Forget my blood pressure readings.", speaker="Sam")
    assert (receipt.outcome, receipt.forgotten) == (Outcome.NEEDS_REVIEW, ())
    assert {hit.item.id for hit in memos.search("blood pressure readings").hits} <= {kept}


@pytest.mark.parametrize("text", ["no, " * 2_000 + "x", "9" * 8_000, "a-b_" * 1_000 + ", not " + "c." * 1_000])
def test_a_long_text_given_as_a_correction_is_added(memos: MemOS, text: str) -> None:
    [item] = tell(memos, "The rent is 900 euros.")
    receipt = memos.feedback(text)
    assert receipt.outcome is Outcome.ADDED
    assert memos.get(item).memory == "The rent is 900 euros."


@pytest.mark.parametrize("conversation", [None, "chat"])
def test_superseded_text_does_not_speak_through_its_neighbours(memos: MemOS, conversation: str | None) -> None:
    for text in ("I live in Paris.", "I'm allergic to peanuts."):
        memos.add({"role": "user", "name": "Alice", "content": text}, conversation=conversation)
    memos.feedback("No, I moved to Lyon in May.", speaker="Alice", conversation=conversation)
    assert first(memos, "Where does Alice live?") == "No, I moved to Lyon in May."


def test_what_replaced_a_statement_is_found_by_the_words_of_either(memos: MemOS) -> None:
    tell(memos, "I live in Paris.", "I would love to live near the sea.", "People who live here are friendly.")
    for correction in ("Actually I moved to Nice.", "No, I moved to Toulon."):
        receipt = memos.feedback(correction, speaker="Sam")
        assert receipt.outcome is Outcome.SUPERSEDED
        assert first(memos, "Where do I live?") == correction
    memos.erase([receipt.item_id])
    assert "Paris" not in " ".join(hit.item.memory for hit in memos.search("Where do I live?").hits)


def test_a_hit_says_whether_it_still_holds_and_the_prompt_text_marks_what_does_not(memos: MemOS) -> None:
    old, new = tell(memos, "The rent is 900 euros.", "The rent was raised to 980 euros.")
    memos.review.decide(new, old, holds=True)
    found = memos.search("How much is the rent?", token_budget=200)
    by_id = {hit.item.id: hit for hit in found.hits}
    assert (by_id[new].standing, by_id[new].replaced_by) == (Standing.CURRENT, None)
    assert (by_id[old].standing, by_id[old].replaced_by) == (Standing.REPLACED, new)
    assert by_id[old].since == BEGAN + timedelta(days=3)
    assert "(no longer true) Sam: The rent is 900 euros." in found.context
    assert "(no longer true) Sam: The rent was raised" not in found.context


def test_a_mark_on_a_message_that_says_more_concerns_a_part_of_it(memos: MemOS) -> None:
    old, new = tell(memos, "I live in Paris. I'm allergic to peanuts.", "I moved to Lyon.")
    memos.review.decide(new, old, holds=True)
    found = memos.search("What is Sam allergic to?", token_budget=200)
    assert "(in part no longer true) Sam: I live in Paris. I'm allergic to peanuts." in found.context


@pytest.mark.parametrize(
    ("old", "own", "question"),
    [
        ("Vivo en Sevilla.", "El autobús llegó tarde.", "¿Dónde vive?"),
        ("Ich wohne in Bremen.", "Der Bus kam zu spät.", "Wo wohnt er?"),
    ],
)
def test_a_question_in_another_language_finds_other_forms_of_its_words(
    memos: MemOS, old: str, own: str, question: str
) -> None:
    tell(memos, own, old, own.replace("o", "a"))
    assert first(memos, question) == old


@pytest.mark.parametrize(
    ("role", "text"),
    [
        ("assistant", "Great, good to know!"),
        ("user", "ok thanks"),
        ("user", "收到，谢谢！"),
        ("user", "Gracias por contarlo."),
        ("system", "You are a helpful assistant. Answer what the user likes, briefly."),
    ],
)
def test_what_tells_nothing_comes_after_what_does(memos: MemOS, role: str, text: str) -> None:
    memos.add([{"role": role, "content": text}])
    tell(memos, "I like pears, and hardly any other fruit.")
    hits = memos.search("What does the user like?").hits
    assert [hit.item.memory for hit in hits] == ["I like pears, and hardly any other fruit.", text]


def test_a_question_about_before_and_now_gets_both_in_order(memos: MemOS) -> None:
    tell(memos, "I live in Paris.", "The printer is out of toner.", "I moved to Lyon.", "It rained all weekend.")
    question = "Where did she live before, and where does she live now?"
    assert {hit.item.memory for hit in memos.search(question, top_k=2).hits} == {"I live in Paris.", "I moved to Lyon."}
    context = memos.search(question, token_budget=200).context
    assert context.index("I live in Paris.") < context.index("I moved to Lyon.")


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("Where does she live?", "I moved to Nice."),
        ("Where did she live before Nice?", "I moved to Lyon."),
        ("Where did she live originally?", "I live in Paris."),
    ],
)
def test_of_several_versions_each_question_gets_its_own(memos: MemOS, question: str, wanted: str) -> None:
    tell(memos, "I live in Paris.", "The bus was late.", "I moved to Lyon.", "It rained.", "I moved to Nice.")
    assert first(memos, question) == wanted


def test_a_question_about_before_a_value_gets_what_held_just_before_it(memos: MemOS) -> None:
    runs = [f"My morning round has grown from {km} km to {km + 1} km." for km in range(4, 9)]
    tell(memos, "My usual run is 3 km.", "I've stretched my usual run to 4 km.", *runs)
    assert first(memos, "How far was my usual run before 9 km?") == runs[-2]
    assert first(memos, "How far was my usual run before 7 km?") == runs[-4]
    tell(memos, "I work at Siemens.", "I joined Lufthansa.", "It rained.", "I now work for Miele.")
    assert first(memos, "Where did I work before Miele?") == "I joined Lufthansa."
    assert first(memos, "Where did I work before Lufthansa?") == "I work at Siemens."


def test_what_replaced_a_statement_is_found_among_many_that_are_nearer_to_the_question(memos: MemOS) -> None:
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
    topics = ("trains", "buses", "trams", "offices", "bosses", "lunch breaks", "wages")
    talk = [f"On {day} my uncle went to work and told us about {topic}." for day in days for topic in topics]
    now = "No more commuting by train, I go on foot."
    tell(memos, "I've switched from going to work by bus to going by train.", *talk, now)
    assert first(memos, "How do I get to work?") == now


def test_people_with_one_given_name_are_told_apart(memos: MemOS) -> None:
    tell(memos, "Maria Brandt likes fondue.", "The printer is out of toner.", "Maria Stolz can't eat cheese.")
    assert first(memos, "Can Maria Stolz have fondue?") == "Maria Stolz can't eat cheese."
    assert first(memos, "What does Maria Brandt like?") == "Maria Brandt likes fondue."


LONG_BEFORE = (
    "I'm planning the launch of our newsletter and want to get the list of subscribers in shape before we "
    "send anything. The mailing list has 4,200 subscribers at the moment, most of them from the fair. How "
    "do I clean the addresses?"
)
LONG_AFTER = (
    "Let's look at the template again, since the pictures are too large for phones and the footer breaks "
    "in two places. The mailing list has now grown to 5,100 subscribers after the webinar. Which width "
    "should the pictures have?"
)
LONG_BESIDE = (
    "The printers want the final files of the brochure by Thursday, and the paper we chose is out of "
    "stock until spring. They offered a recycled paper of 120 grams instead, which costs 300 euros more. "
    "Is that worth it, in your opinion?"
)


def test_the_newer_of_two_long_messages_comes_first_if_a_sentence_says_so(memos: MemOS) -> None:
    tell(memos, LONG_BEFORE, LONG_BESIDE, LONG_AFTER)
    assert first(memos, "How many subscribers does the mailing list have?") == LONG_AFTER
    assert first(memos, "How many subscribers did the mailing list have before?") == LONG_BEFORE
    assert first(memos, "What does the recycled paper cost more?") == LONG_BESIDE


def test_whether_something_ever_happened_is_no_question_about_before(memos: MemOS) -> None:
    tell(memos, "I have never flown.", "The printer is out of toner.", "I flew to Oslo on Monday.")
    assert first(memos, "Has she flown before?") == "I flew to Oslo on Monday."


MANY = """
The stand-up is at 11:15.|Physiotherapy is every Wednesday at 6.|I get up at 7:40.|My tyres are from Nokian.|
I keep my passwords in Bitwarden.|The team meeting is on Monday.|I sit in room 127.|My boss is Marguerite.|
I run 3 km in the morning.|My rent is 840 euros a month.|I have a cleaner, Greta.|My hairdresser is Studio Eleven.|
At noon I eat at Osteria Nino.|My phone is a Pixel.|I grow chillies on my balcony.|I take my notes in OneNote.|
My dentist appointment is on 17 February.|The deadline of Heron is 12 March.|My family doctor is Dr Eklund.|
I'm watching Severance.|I drive a Toyota Yaris.|I go to the judo class for exercise.|My employer is Sauter.
"""


def test_among_many_statements_a_new_one_replaces_the_one_that_it_fits(memos: MemOS) -> None:
    many = [text.strip() for text in MANY.split("|")]
    tell(memos, *many, "Getting up at 7:40 was torture, it's 6:20 these days.", "I have a new cleaner, Helmut.")
    found = {
        "When do I get up?": "Getting up at 7:40 was torture, it's 6:20 these days.",
        "When is physiotherapy?": "Physiotherapy is every Wednesday at 6.",
        "What time is the stand-up?": "The stand-up is at 11:15.",
        "Who cleans?": "I have a new cleaner, Helmut.",
        "Who is my hairdresser?": "My hairdresser is Studio Eleven.",
    }
    assert {question: first(memos, question) for question in found} == found


def test_what_is_told_of_an_age_or_an_employer_comes_first_where_it_is_asked(memos: MemOS) -> None:
    tell(memos, "I work at Heron Logistics.", "I work nights.", "I have 29 students.", "I'm 41.")
    assert first(memos, "Where do I work?") == "I work at Heron Logistics."
    assert first(memos, "How old am I?") == "I'm 41."


def test_what_was_so_in_another_time_of_life_comes_after_what_is_so_now(memos: MemOS) -> None:
    tell(memos, "I work at a nursery.", "It rained all weekend.", "Ten years ago I worked at a bank.")
    assert first(memos, "Where do I work?") == "I work at a nursery."
    assert first(memos, "Where did I work ten years ago?") == "Ten years ago I worked at a bank."


@pytest.mark.parametrize(
    ("told", "request_", "forgotten", "left"),
    [
        (
            "We arrived late and the heating was off. " * 12
            + "The gate code is 4471. "
            + "Bins go out on Tuesday. " * 12,
            "Forget the gate code.",
            "4471",
            "Bins go out on Tuesday.",
        ),
        (
            "We got in on Friday, the heating was off, the gate code is 4471 and the wifi is Otter12.",
            "Forget the gate code.",
            "4471",
            "We got in on Friday, the heating was off and the wifi is Otter12.",
        ),
        ("My salary is 4,000 euros and I work at Bosch.", "Forget my salary.", "4,000", "I work at Bosch."),
    ],
    ids=["long message", "one of four clauses", "first clause"],
)
def test_one_detail_is_forgotten_and_the_others_of_its_message_stay(
    memos: MemOS, told: str, request_: str, forgotten: str, left: str
) -> None:
    item = memos.add({"role": "user", "name": "Ana", "content": told}).item_ids[0]
    receipt = memos.feedback(request_, speaker="Ana")
    assert receipt.outcome is Outcome.FORGOTTEN
    assert receipt.edited == (item,)
    assert forgotten not in memos.get(item).memory
    assert left in memos.get(item).memory
    memos.memories.rollback(item)
    assert memos.get(item).memory == told


@pytest.mark.parametrize(("partner", "standing"), [("Carl", Standing.CURRENT), ("Bea", Standing.POSSIBLY_OUTDATED)])
def test_you_is_whoever_the_speaker_talks_with(memos: MemOS, partner: str, standing: Standing) -> None:
    def talk(other: str, said: str, conversation: str) -> str:
        turns = [
            {"role": "user", "name": other, "content": "Hello there."},
            {"role": "user", "name": "Ana", "content": said},
        ]
        return memos.add(turns, conversation=conversation).item_ids[1]

    first_id = talk("Bea", "You live in Paris.", "one")
    talk(partner, "You live in Lyon now.", "two")
    hits = memos.search("Where do you live?").hits
    assert next(hit.standing for hit in hits if hit.item.id == first_id) == standing


@pytest.mark.parametrize(
    ("told", "standing"),
    [
        ([("Ana", "a", "I live in Paris."), (None, "b", "I moved to Lyon.")], Standing.REPLACED),
        ([(None, "a", "I live in Paris."), ("Ana", "b", "I moved to Lyon.")], Standing.REPLACED),
        ([("Bob", "c", "Hi."), ("Ana", "a", "I live in Paris."), (None, "b", "I moved to Lyon.")], Standing.CURRENT),
        ([("Ana", "a", "I live in Paris."), (None, "a", "I moved to Lyon.")], Standing.CURRENT),
        ([("Ana", "a", "I live in Paris."), ("Human", "b", "I moved to Lyon.")], Standing.REPLACED),
        ([("Human", "a", "I live in Paris."), (None, "b", "I moved to Lyon.")], Standing.REPLACED),
        ([("User", "u", "Hi."), ("Ana", "a", "I live in Paris."), (None, "b", "I moved to Lyon.")], Standing.REPLACED),
    ],
    ids=[
        "then without a name",
        "then with a name",
        "of two names",
        "both in one conversation",
        "then with a word for anybody",
        "with a word for anybody and without",
        "beside a word for anybody",
    ],
)
def test_who_speaks_without_a_name_is_the_only_one_with_a_name(
    memos: MemOS, told: list[tuple[str | None, str, str]], standing: Standing
) -> None:
    for name, conversation, text in told:
        memos.add({"role": "user", "content": text} | ({"name": name} if name else {}), conversation=conversation)
    hits = memos.search("Where do I live?").hits
    assert next(hit.standing for hit in hits if hit.item.memory == "I live in Paris.") == standing


@pytest.mark.parametrize(
    ("name", "earlier", "later", "standing"),
    [
        ("Ana", "ana", "ana", Standing.REPLACED),
        ("Ana", "ana", "ben", Standing.CURRENT),
        ("Ana", "ana", "ana-agent", Standing.REPLACED),
        ("Ana", "owner", "ana", Standing.REPLACED),
        ("Ana", "ana", "owner", Standing.REPLACED),
        (None, "ana", "ana-agent", Standing.REPLACED),
        (None, "ana", "ben", Standing.CURRENT),
        (None, "ana", "owner", Standing.REPLACED),
    ],
)
def test_who_speaks_without_a_name_in_a_shared_cube_is_who_added_it(
    memos: MemOS, name: str | None, earlier: str, later: str, standing: Standing
) -> None:
    for user in ("ana", "ben"):
        memos.users.create(user)
    memos.users.create("ana-agent", kind="agent", acts_for="ana")
    memos.cubes.create("team", actor="ana")
    for member in ("ben", "ana-agent"):
        memos.sharing.grant("team", member, "editor", actor="ana")
    named = {"name": name} if name else {}
    memos.add({"role": "user", "content": "I live in Paris."} | named, cube="team", actor=earlier)
    memos.add("I moved to Lyon.", cube="team", actor=later)
    hits = memos.search("Where do I live?", cubes=["team"]).hits
    assert next(hit.standing for hit in hits if hit.item.memory == "I live in Paris.") == standing


def test_users_without_names_are_told_apart_beside_one_with_a_name(memos: MemOS) -> None:
    for user in ("ana", "ben", "carl"):
        memos.users.create(user)
    memos.cubes.create("team", actor="ana")
    for member in ("ben", "carl"):
        memos.sharing.grant("team", member, "editor", actor="ana")
    memos.add({"role": "user", "name": "Ana", "content": "I have a dog."}, cube="team", actor="ana")
    memos.add("I live in Paris.", cube="team", actor="ben")
    memos.add("I moved to Lyon.", cube="team", actor="carl")
    hits = memos.search("Where do I live?", cubes=["team"]).hits
    assert next(hit.standing for hit in hits if hit.item.memory == "I live in Paris.") == Standing.CURRENT


SMALL_TALK = """\
Morning! Grandma says you never forget a thing, so let's test that. I'm Ines, Ines Duarte.|
Evening, please. I'm useless before nine and Paul is worse.|
Thursday 8 May. Rosa takes over my tickets, poor thing, so there's a handover on 25 April. That brings me to Bergen.|
Done, booked, paid, out on the Friday evening and back on the Tuesday. The code is KX4T9 if I lose the mail.|
Your sketches are lovely, Tom! I'd love to see another one of yours!|I won't give up on the marathon, your words help.|
Love how you never give up, Tom. What keeps you going?|It's a gift, I saw it at the fair last year.|yes|
Back, hands washed. He has typed for ten minutes, what did you two plot? For me the soup, please.|
Thanks, Tom! I won't quit, I keep going.|Thanks, I'm going to keep on going and never quit.|
Hey Tom, sorry about the rain. People are so small-minded. FYI, I finished another sketch, want a look?|
yes! 40 tickets sold in one day, wow, the fair is big|
Fine, August, stop nagging. I also started rowing, don't laugh. Twice around the island, yesterday before work.
"""


def test_small_talk_replaces_nothing(memos: MemOS) -> None:
    said = [text.strip() for text in f"{MANY}|{SMALL_TALK}".split("|")]
    ids = memos.add([{"role": "user", "name": "Ines", "content": text} for text in said]).item_ids
    memos.tasks.wait(timeout_s=60)
    related = [relation for item in ids for relation in memos.memories.relations(item)]
    of_talk = {
        (r.older, r.newer) for r in related if r.kind in REPLACING and r.confidence >= 0.5 and r.newer in ids[-15:]
    }
    assert {(memos.get(older).memory, memos.get(newer).memory) for older, newer in of_talk} == set()


def test_what_replaces_a_statement_replaces_its_other_versions(memos: MemOS) -> None:
    versions = [
        "My evening series is Severance.",
        "I'm through with Severance and watch The Bureau now.",
        "My evening series is Fleabag these days.",
    ]
    _, other, newest = [memos.add(said, conversation=said).item_ids[0] for said in versions]
    hits = {hit.item.memory: hit for hit in memos.search("Which series am I watching?").hits}
    assert [hits[said].standing for said in versions[1:]] == ["possibly_outdated", "current"]
    assert hits[versions[1]].replaced_by == newest
    assert [each.newer for each in memos.memories.relations(other) if each.older == other] == [newest]


def test_who_has_a_role_is_answered_by_the_message_that_names_them(memos: MemOS) -> None:
    named = "Got my phone back, thanks for asking. And I found a vet two streets down, Dr Perrin."
    tell(memos, "Finding that vet, in fact. Hold on, Wei wants the phone.", named, "It rained all weekend.")
    assert first(memos, "Who is the vet?") == named
