"""Read from the words of a statement whom it is about, what values it has, and whether it tells of a change.

Word lists in English, German, Spanish and Chinese; a statement in another language is judged by its vector alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import chain, pairwise
from typing import NamedTuple

from memos.core.text.caches import cached_by_text
from memos.core.text.languages import language_of


def words_of(text: str) -> frozenset[str]:
    """Return the words of a list as a set."""
    return frozenset(text.split())


_HAN = re.compile(r"[\u3400-\u9fff]")
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_CHARS = 600
"""Characters of a text that are read: what replaces a statement says so early."""

_SPEAKER = words_of(
    "i i'm i've i'd i'll we we're we've we'd we'll me us my our mine ours myself ourselves "
    "ich wir mich mir uns mein meine meinen meinem meiner meines unser unsere unseren unserem unserer "
    "yo nosotros nosotras me nos mi mis nuestro nuestra nuestros nuestras conmigo"
)
KIN = {
    "english": words_of("""
        mother mom mum mummy mama mam dad daddy father papa brother bro sister sis sibling siblings aunt auntie uncle
        cousin cousins nephew nephews niece nieces grandma grandpa grandmother grandfather granny nan nana gran grandad
        grandson granddaughter grandparents parents parent son sons daughter daughters kid kids child children stepson
        stepdaughter stepdad stepmum husband hubby wife spouse partner girlfriend boyfriend fiancé fiancée fiance
        fiancee ex friend friends colleague colleagues coworker coworkers boss neighbour neighbours neighbor neighbors
        flatmate flatmates roommate roommates housemate landlord landlady twin twins buddy mate mates tenant tenants
        godmother godfather godson goddaughter teammate classmate deskmate workmate intern trainee apprentice
        in-laws supervisor
        """),
    "german": words_of("""
        mutter mama mutti vater papa bruder schwester geschwister tante onkel cousin cousine neffe nichte oma opa
        großmutter großvater eltern sohn tochter kind kinder mann frau freund freundin kollege kollegin kollegen chef
        chefin nachbar nachbarin nachbarn mitbewohner mitbewohnerin schwager schwägerin schwiegermutter schwiegervater
        schwiegereltern enkel enkelin vermieter vermieterin verlobte verlobter kumpel
        """),
    "spanish": words_of("""
        madre mamá padre papá hermano hermana hermanos tía tío tíos prima primo primos sobrino sobrina abuela abuelo
        abuelos padres hijo hija hijos esposo esposa marido mujer novio novia amigo amiga amigos colega compañero
        compañera jefe jefa vecino vecina vecinos suegro suegra cuñado cuñada yerno nuera nieto nieta casero casera
        """),
}
_KIN_HAN = re.compile(
    r"妈妈|母亲|老妈|我妈|爸爸|父亲|老爸|我爸|爸妈|父母|哥哥|弟弟|姐姐|妹妹|我哥|我弟|我姐|我妹|阿姨|叔叔|舅舅|舅妈|姑姑|姨妈|"
    r"表[哥弟姐妹]|堂[哥弟姐妹]|侄[女子]|外甥女?|奶奶|爷爷|外婆|外公|姥姥|姥爷|儿子|女儿|孩子|老公|丈夫|老婆|妻子|媳妇|"
    r"[男女]朋友|朋友|闺蜜|同学|同事|老板|领导|邻居|室友|房东|嫂子|姐夫|岳[父母]|公公|婆婆|隔壁"
)
_NAME_HAN = re.compile(
    r"[小老阿][王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任沈姚卢姜崔钟谭"
    r"陆汪范金石廖贾夏韦付方白邹孟熊秦邱江尹薛闫段侯史陶黎贺顾毛郝龚邵万钱严武戴莫孔雪雨明强芳丽红军伟杰婷]"
)
_SELF_HAN = re.compile(r"[我咱俺]们?")

_OPENERS = words_of("""
    the a an this that these those it its there here what when where who whom whose which how why is are was were do
    does did has have had can could will would shall should may might must and or but so if then since after before
    because while for from with without in on at by to of off out up down over under no not yes nope yeah ok okay well
    one two three four five six seven eight nine ten some any every all both half only just also still yet now today
    yesterday tonight tomorrow last next first second third new old good bad great big little more most other another
    finally back got get gave let please call wrong actually correction typo sorry
    der die das den dem des ein eine einen einem einer es wo wann wer was wie warum welche welcher welches ist sind war
    hat haben hatte und oder aber wenn seit nach vor weil für von mit ohne in im am an auf bei zu zum zur kein keine
    nein ja nicht nur auch noch jetzt heute gestern morgen nun endlich neu alle beide früher inzwischen mittlerweile
    el los las un una unos unas lo qué que cuándo dónde quién cuál cómo por es son era fue ha han había y o pero si
    desde después antes porque para con sin en a de del al no sí ya ahora hoy ayer mañana hay todo todos
    """)
_FILLERS = words_of("""
    the a an of to in on at by for from with and or but is are was were be been being am do does did done has have had
    i me my mine we us our ours you your he she they them him his her hers their it its this that these those there
    here what which who whom whose when where how why not no so as if then than will would can could shall should may
    might must all any some every each one also just only very too out up down off over about into per much many more
    most still yet even really again got get i'm i've i'd i'll we're we've it's that's there's don't
    der die das den dem des ein eine einen einem einer und oder aber ist sind war waren sein hat haben hatte ich mich
    mir wir uns du er sie es ihr ihn ihm in im am an auf bei zu zum zur von vom mit für nach vor aus um als wie so auch
    noch nur sehr mein meine meinen meinem meiner unser unsere wo wann wer was
    el la los las un una de del al a en y o pero es son era fue ha han yo me mi mis nos nuestro nuestra se su sus le lo
    que qué por para con sin como más muy también dónde cuándo quién cuál cómo
    """)
_SUFFIX = re.compile(r"(?:ings?|edly|ed|es|s|ly|ions?|ers?|ment|en|n|e)$")
_NUMBER_WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|zero|none|half|dozen|"
    "once|twice|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|"
    "ein|eine|einen|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|null|"
    "uno|una|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|once|doce|cero"
)
# These are searched for in lower case, which takes a third of the time of matching without case.
_NUMBER = re.compile(
    rf"\d+(?:[.,:]\d+)*|(?<![\w'’])(?:{_NUMBER_WORDS})(?![\w'’])|[零一二两三四五六七八九十百千万]+(?![起直定样些下会])",
)
_DATE = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?:january|february|march|april|may|june|july|august|"
    r"september|october|november|december|spring|summer|autumn|winter|weekend|morning|evening|noon|midnight|"
    r"montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag|januar|februar|märz|mai|juni|juli|oktober|dezember|"
    r"frühling|sommer|herbst|uhr|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|"
    r"diciembre|lunes|martes|miércoles|jueves|viernes|sábado|domingo|primavera|verano|otoño|invierno)s?\b"
    r"|\d+(?:st|nd|rd|th)\b|\b\d{1,2}(?::\d\d)? ?(?:am|pm)\b|\b\d{1,2}:\d\d\b|o['’]clock"
    r"|[一二三四五六七八九十\d]+[年月号日点]|(?:周|星期|礼拜)[一二三四五六日天]|月底|年底|国庆|春节|元旦|暑假|寒假",
)
_ENDS = re.compile(
    r"\b(?:no longer|(?:not|n['’]t)\b.{0,40}\bany ?more|cancel(?:s|led|ed|ling)?|call(?:ed|ing) (?:it )?off|"
    r"(?:is|are|was|were|all|it['’]s|that['’]s) off|off the (?:table|cards|menu)|quit|quitting|g[ai]ve(?:n|"
    r"s)? (?:it |them )?up|stopp?(?:ed|ing)?|"
    r"dropp?(?:ed|ing)|(?:drop|pull(?:ed)?|back(?:ed)?) out|"
    r"hand(?:ed|ing)? (?:\w+ ){0,4}over|stepp?(?:ed|ing) down|scrapp?(?:ed|ing)|ditch(?:ed|ing)|"
    r"(?:is|are|was|were|all) over|ended|broke up|broken up|"
    r"split up|"
    r"(?:ran|run|runs) out|expired?|resigned|retired|sold|gave away|given away|threw (?:\w+ ){0,2}(?:out|away)|"
    r"(?:paid|pay) (?:\w+ ){0,2}(?:back|off)|is history|are history|fell through|falls through|shut down|closed down|"
    r"went bust|without an?|done with|out of (?:the )?(?:question|business|service)|free of|since i (?:left|quit)|"
    r"behind me|for good|never again|haven['’]t|hasn['’]t|won['’]t|isn['’]t|aren['’]t|don['’]t|doesn['’]t|can['’]t|"
    r"not going|not happening|gone)\b"
    r"|\b(?:nicht mehr|keine? (?:\w+ )?mehr|abgesagt|fällt (?:\w+ ){0,3}aus|ausgefallen|aufgehört|aufgegeben|"
    r"gekündigt|verkauft|"
    r"schluss|vorbei|getrennt|beendet|abgemeldet|abbestellt|gestrichen|erledigt|zurückgezahlt|geplatzt|ohne)\b"
    r"|\b(?:ya no|cancel\w+|dej[éóa]\w*|vend[íió]\w*|termin[éóa]\w*|romp\w+|se acabó|acab[éóa]\w*|suspend\w+|"
    r"renunci\w+|"
    r"abandon\w+|nunca más|sin)\b"
    r"|不再|不[去吃喝抽玩开干做养学办来]了?|不[打练看坐骑住教订买弹跑跳唱租订约报]了|没了|取消|戒|停|退[了掉订租]|卖[了掉]|辞|分手|结束|不用|作废|还清|黄了|泡汤|算了|别了",
)
_CHANGES = re.compile(
    r"\b(?:now|instead|from now on|these days|nowadays|moved|moving|move[sd]? (?:in|out|to|into)|switch(?:ed|es|ing)?|"
    r"chang(?:ed|es|ing)|swapp?(?:ed|ing)|replac(?:ed|es|ing)|upgrad(?:ed|es)|rais(?:ed|es)|lower(?:ed|s)|bumped|"
    r"extended|postponed|put off|push(?:ed)? (?:back|to)|put back|brought forward|delayed|slipp?(?:ed|s)|migrat(?:ed|"
    r"ing)|"
    r"renamed|rebranded|settled on|traded|transferred|promoted|converted|turned into|became|becomes|has become|"
    r"back (?:in|at|to|on|with)|reset|down to|up to|went (?:back|over|up|down|from)|goes by|took over|made me|"
    r"started|starting|begin|began|new|newly|latest|signed|joined|got|landed|picked up|bought|adopted|"
    r"(?<!the )left(?! (?:of|side|hand|foot|arm|leg|knee|ear|eye))|"
    r"passed|finished|accepted|arrived|decided|since|as of|already|only|just|another|actually|turns out|"
    r"version|instead of|rather than|not \w+ but)\b"
    r"|\b(?:jetzt|nun|inzwischen|mittlerweile|seit|ab sofort|ab (?:januar|februar|märz|april|mai|juni|juli|august|"
    r"september|"
    r"oktober|november|dezember|montag|nächste\w*)|statt(?:dessen)?|umgezogen|umzug|gewechselt|wechsle|umgestiegen|"
    r"verschoben|verlegt|"
    r"erhöht|gestiegen|gesenkt|verlängert|umbenannt|heißt jetzt|neu\w*|endlich|geschafft|angefangen|gekauft|umgestellt|"
    r"geändert|schon|erst|doch)\b"
    r"|\b(?:ahora|desde|a partir de|en vez de|en lugar de|mud[óéa]\w*|cambi\w+|compr[éó]\w*|aplaz\w+|pas[éó]\w*|"
    r"nuev[oa]s?|"
    r"empec\w+|empez\w+|por fin|subi\w+|baj[óé]\w*|ampli\w+|ascend\w+|retras\w+|adelant\w+|al final|acabo de|tras|"
    r"últim\w+)\b"
    r"|现在|如今|改[成为名到用期]?|换|搬|迁|推迟|延期|延到|提前|升[级到]|涨|降|新|已经|终于|刚|开始|转|调|变|加到|减到|"
    r"只剩|才|又|从.{0,6}起|以后都",
)
_SURE_CHANGES = re.compile(
    r"\b(?:no longer|any ?more|instead|from now on|as of|these days|(?:is|are|am|['’]m|['’]s|['’]re) now|now (?:a|in|"
    r"at|on|the)|"
    r"moved (?:in|out|to|into|from|it|us|them|my|our|the)|switch(?:ed)? (?:to|over|back|from|us|me|it|jobs?|"
    r"schools?)|swapped|replaced|upgraded|"
    r"raised|lowered|bumped|extended|postponed|put off|push(?:ed)? back|brought forward|slipped|migrated|ported|"
    r"renamed|"
    r"rebranded|settled on|traded|transferred|back (?:in|at|to|on|with)|reset|down to|up to|gone up|went up|"
    r"nicht mehr|inzwischen|mittlerweile|ab sofort|umgezogen|gewechselt|umgestiegen|verschoben|verlegt|erhöht|"
    r"verlängert|umbenannt|"
    r"ya no|ahora|a partir de|en vez de|mudé|mudamos|cambi[éóa]\w*|aplaz\w+|pas[óé] a)\b"
    r"|现在|如今|改[成为名到用期]|换[成了到]|搬[到去进]|迁[到移]|推迟|延期|提前|升[级到]|涨[到了]|降到|变成|转到|调[到去]",
)
_UNREAL = re.compile(
    r"\b(?:(?:would|['’]d) (?:like|love|rather|prefer|kill)|one day|some ?day|might|maybe|perhaps|possibly|"
    r"think(?:ing)? (?:of|about)|thought about|toy(?:ing|ed) with|consider(?:ed|ing)?|tempted|dream(?:t|ed|ing|s)?|"
    r"wish(?:ed)?|"
    r"if (?:i|we|only|he|she|they)|nearly|almost|came close|talked (?:me|us) out|decided against|changed my mind|"
    r"(?:years?|months?|weeks?|long) ago|back then|my (?:very )?first \w+ was|"
    r"at (?:school|university|college|uni),? (?:i|we)|"
    r"when (?:i|we) (?:was|were) (?:an?|in|at|little|young|small|\d+)|"
    r"back in (?:19|20)\d\d|in my (?:first|old|last|previous|former)|could never|would|back when|used to|"
    r"as an? (?:kid|child|boy|girl|teenager|student|apprentice|trainee)|someone|somebody|"
    r"let['’]s|jok(?:e|es|ed|ing)|kidding|laughed|"
    r"suggest(?:s|ing|ed)?|recommend(?:s|ed|ing)?|keeps? (?:telling|asking|pushing|saying|trying|suggesting)|"
    r"pitch(?:ed|es)?|"
    r"trip|visit(?:ed|ing)?|on holiday|on vacation|for the (?:weekend|day|night|week|afternoon)|weekend in|"
    r"day trip|borrowed|lent me|loaner|rental|while (?:mine|ours|the|it|he|she)|pretend\w*|imagin\w*|offer(?:ed|s)?|"
    r"could have|"
    r"was going to|were going to|in a (?:film|movie|novel|book|play)|test drove|tried on|tried|fantas\w+|april fool\w*|"
    r"rumou?rs?|ad for|advert|looked at|window shopping|turned (?:it|them|her|him) down|said no|but no|stayed put|"
    r"in the end (?:we|i) (?:kept|stayed))\b"
    r"|\b(?:würde|möchte|hätte|wäre|vielleicht|irgendwann|eines tages|fast|beinahe|geträumt|traum|damals|als kind|"
    r"vor (?:\w+ )?(?:jahren|monaten)|überlegt|überlege|witz|scherz|zu besuch|im urlaub|ausnahmsweise|geliehen|"
    r"leihweise|vertretung|übers wochenende)\b"
    r"|\b(?:me gustaría|quizás?|tal vez|a lo mejor|algún día|casi|soñ[éó]|sueño|hace (?:\w+ )?(?:años|meses)|"
    r"de niñ[oa]|"
    r"pens[éó]|pensando en|broma|de visita|de vacaciones|prestad[oa]|ojalá|si tuviera|propus\w+|sugir\w+|recomend\w+)\b"
    r"|梦见|梦到|做梦|想过|想要|要是|希望|也许|可能|差点|如果|以前|从前|小时候|建议|开玩笑|旅游|出差|玩了|推荐|借|临时|本来想|"
    r"考虑过|打算过|年前|羡慕",
)


GIVEN_NAMES = words_of("""
    aaron abby abdul abigail abu ada adam adele aditya adrian agata agnes agnieszka ahmad ahmed aiko aisha akira alain
    alan albert aleks alessandro alessia alex alexa alexander alexandra alexei alexis alfie ali alice alicia alina
    alison aliya allison alma alvaro amal amanda amelia amina amir amit amy ana anais anand anastasia anders andre
    andrea andreas andrei andres andrew andy angela angelo angus anika anil anita anja anke ann anna anne annette
    annie anouk ansel anton antonia antonio anya arjun arlo armando arne arthur artur arturo asha ashley astrid audrey
    aurora ava axel ayesha aylin barbara bart bea beata beatrice beatriz becky bella ben benedikt benjamin bernard
    bernd bert beth bettina betty bianca billy birgit bjorn bob bogdan boris brad brandon brenda brian bridget
    brigitte bruce bruno bryan caleb camila carl carla carlo carlos carmen carol carolina caroline cassie catalina
    cath catherine cecilia celia celine cesar chantal charles charlie charlotte chiara chidi chloe chris christa
    christian christina christine christoph christopher ciara cindy claire clara claudia clemens cleo clive cody colin
    connor cora cornelia craig cristina curtis cynthia damian dan dana daniel daniela danny daphne dario darren dave
    david debbie deborah deepak delia denis denise dennis derek devi diana diane diego dieter dimitri dirk dmitri
    dominic dominik donna dora doris dorothy doug duncan dylan ed eddie edgar edith eduardo edward edwin eileen elaine
    elena eleni eli elias elif elijah elin elisa elise elizabeth ella ellen ellie elliot eloise elsa emeka emil emilia
    emilio emily emma emre enrico enrique enzo erhan eric erica erik erika erin ernest ernesto esra esteban estelle
    esther ethan eugene eva evan eve evelyn fabian fabio faisal farah farid fatima fatma felicity felipe felix fergal
    fernanda fernando finn fiona florian frances francesca francesco francis francisco franco frank franz franziska
    fred freddie frederik freya frida friedrich gabriel gabriela gareth gary gavin gemma geoff george georgina gerald
    gerard gerda gerhard gianni gideon gina gino giorgio giovanni gisela giulia giuseppe gloria gonzalo gordon graham
    greg gregor greta gretchen guillermo gunther gustav hamid hamza hana hanna hannah hannes hans harald hari harold
    harriet harry harvey hassan hector heidi heike heinz helen helena helga helmut hendrik henri henrik henry herbert
    hiro hiroshi holger holly horst howard hugh hugo hussein ian ibrahim ida ignacio igor ilona ilse imani imran ina
    indira ines inga inge ingo ingrid ioana irene irina irma isaac isabel isabella isla ismail ivan ivana ivo jack
    jackie jacob jacques jake jamal james jamie jan jana jane janet janine jannik jasmin jasmine jason javier jay jean
    jeff jelena jen jenna jennifer jenny jens jeremy jerome jerry jess jesse jessica jesus jill jim jimmy jo joan
    joana joanna joanne joao jochen joe joel joey johan johanna john johnny jon jonas jonathan jordan jorge jose josef
    josefina joseph josephine josh joshua joyce juan juana judith judy juergen jules julia julian juliana julie julien
    juliet julio julius jurgen justin jutta kai kaja kamal kamil kara karen karim karin karl karla karol karolina
    kasia kate katharina katherine kathleen kathrin kathy katie katja katrin katya keith kelly ken kenji kenneth kerry
    kerstin kevin khadija khalid kim kinga kirsten kirsty klara klaus kofi konrad konstantin krishna kristen kristin
    krzysztof kurt kwame kyle lara lars laszlo latifa laura lauren laurence laurent lea leah leandro leila lena
    lennart leo leon leonard leonardo leonie leonor leroy lesley leslie levi lewis liam lidia lila lili lilian lilly
    lily lina linda lindsay lionel lisa liz lizzie lola lorena lorenzo lottie louis louisa louise luca lucas lucia
    luciana lucie lucy ludwig luigi luis luisa luka lukas luke luna lutz lydia lynn maddie madeleine mads magda
    magdalena mahmoud maja malcolm malik mandy manfred manon manuel manuela mara marc marcel marcela marcello marco
    marcos marcus maren margaret margarita margot maria mariam marian mariana marianne marie marielle marija marika
    marilyn marina mario marion marisa marit marius marko markus marlene marta martha martin martina marvin mary mateo
    mathias mathilde matilda matt matteo matthew matthias maureen maurice max maxim maya megan mehmet mei melanie
    melissa mercedes meredith mia michael michaela michal michel michele michelle miguel mika mike mikhail mila milena
    mina mira miranda miriam miro misha mitch mohamed mohammed moira molly mona monica monika morgan moritz moses
    muhammad murat mustafa nadia nadine nadja nancy naomi natalia natalie natasha nathan neil nelly nelson nestor
    niall nick nico nicola nicolas nicole niels nigel nikita niklas nikolai nils nina nino noah noel noemi noor nora
    norbert norman nuria oksana ola olaf oleg olga oliver olivia omar orla oscar oskar osman otto owen pablo paco
    paige pamela paola paolo pascal pat patience patricia patrick patrik paul paula paulina pauline paulo pavel pedro
    peggy penelope perry pete peter petra petros phil philip philipp phoebe pia pierre pietro pilar piotr priya rachel
    rafael rahul raj rajesh ralf ralph ramon ramona raquel rashid raul ravi raymond rebecca reggie regina reinhard
    renate rene rhodri rhys ricardo richard rick ricky rita rob robert roberta roberto robin rocio rodrigo roger
    roland rolf roman romeo ron ronald ronja rory rosa rosalind rosanna rosario rosie ross roy ruben ruby rudi rudolf
    rupert russell ruth ryan sabine sabrina sadie salim sally salma salvatore sam samantha samir samuel sandeep sandra
    sandro sanjay santiago sara sarah sascha sasha saskia scott sean sebastian selim selma serena sergei sergio seth
    shane shannon sharon shaun sheila shirin shirley sibylle sidney siegfried sigrid silke silvia simon simona simone
    siobhan sofia soledad solveig sonia sonja sophia sophie soren stan stanislav stefan stefanie stefano stella
    stephanie stephen steve steven stuart sunil susan susana susanne susie suzanne sven svenja svetlana sylvia tabitha
    takashi tamara tania tanja tanya tara tariq tatiana ted terence teresa terry tessa thea theo theodor theresa
    thomas thorsten tiago tilda tim timo timothy tina tobias toby todd tom tomas tommy toni tony torsten tracy trevor
    tristan trudy ugo ulla ulrich ulrike uma umberto unai ursula uwe valentin valentina valeria valerie vanessa vera
    verena veronica vicente vicky victor victoria vikram viktor vince vincent vincenzo viola vivian vladimir volker
    walter wanda wayne wendy werner wilfried willem william willy winston wolfgang xavier ximena yara yasmin yolanda
    yuki yuri yusuf yvette yvonne zach zara zeynep zoe zofia zuzana
    """)
"""Frequent given names: at the start of a sentence a capital alone does not tell a person from any other word."""


class Owner(IntEnum):
    """Whom a statement is about, as far as its first subject shows."""

    UNKNOWN = 0
    SPEAKER = 1
    NAMED = 2
    RELATIVE = 3


@dataclass(frozen=True)
class Claim:
    """Features of a statement read from its words: whom it is about, its values, words of change and ending.

    Those with word lists are read when they are asked for: a search needs one of them, comparing statements all.
    """

    text: str
    owner: Owner
    holder: str
    people: frozenset[str]
    names: frozenset[str]
    terms: frozenset[str]
    head: frozenset[str]
    asks: bool

    @cached_property
    def _lower(self) -> str:
        return self.text.lower()

    @cached_property
    def numbers(self) -> frozenset[str]:
        return frozenset(_NUMBER.findall(self._lower))

    @cached_property
    def dated(self) -> bool:
        return _DATE.search(self._lower) is not None

    @cached_property
    def changes(self) -> bool:
        return _CHANGES.search(self._lower) is not None

    @cached_property
    def change_words(self) -> frozenset[str]:
        return frozenset(_CHANGES.findall(self._lower))

    @cached_property
    def sure(self) -> bool:
        return _SURE_CHANGES.search(self._lower) is not None

    @cached_property
    def ends(self) -> bool:
        return _ENDS.search(self._lower) is not None

    @cached_property
    def unreal(self) -> bool:
        return _UNREAL.search(self._lower) is not None

    @cached_property
    def count(self) -> int:
        """The number of words; three Han characters say about as much as two words."""
        signs = 0 if self.text.isascii() else len(_HAN.findall(self.text))
        return len(_WORD.findall(self.text)) + 2 * signs // 3


@cached_by_text(maxsize=4096)
def read_claim(text: str) -> Claim:
    """Read a statement or a question, of which the first 600 characters count."""
    text = text[:_CHARS].replace("’", "'")
    read = _han_subject if not text.isascii() and _HAN.search(text) else _subject
    subject = read(text)
    if subject.owner > Owner.SPEAKER:
        opening = _CLAUSE.split(text, maxsplit=1)[0]
        if len(opening) < len(text) and _tells_of_a_change(opening):
            # "The trip is off, my sister is ill.": not a statement about the sister.
            first = read(opening)
            subject = subject._replace(owner=first.owner, holder=first.holder)
    return Claim(
        text=text,
        owner=subject.owner,
        holder=subject.holder,
        people=frozenset(subject.people),
        names=frozenset(subject.names),
        terms=frozenset(terms_of(text)),
        head=frozenset(terms_of(_head(text))),
        asks=text.rstrip().endswith(("?", "？")),
    )


_CLAUSE = re.compile(r"[,;:.!?]\s+|\s[–—-]+\s|[，。；：！？]")


def _tells_of_a_change(clause: str) -> bool:
    lower = clause.lower()
    return _ENDS.search(lower) is not None or _SURE_CHANGES.search(lower) is not None


class _Subject(NamedTuple):
    owner: Owner
    holder: str
    people: set[str]
    names: set[str]


def _subject(text: str) -> _Subject:
    owner, holder = Owner.UNKNOWN, ""
    people, names = set[str](), set[str]()
    words = _WORD.findall(text)
    lows = [word.casefold() for word in words]
    kin = KIN.get(language_of(text), KIN["english"])
    starts: list[int] = []
    for place, low in enumerate(lows):
        if low in _SPEAKER:
            if owner is Owner.UNKNOWN and not _leads_to_relative(lows, place, kin):
                owner = Owner.SPEAKER
            continue
        word, bare = words[place], low
        if "'" in low:
            bare = low.removesuffix("'s").removesuffix("'")
        if bare in kin or ("-" in bare and bare.endswith(("-in-law", "-in-laws"))):
            people.add(bare)
            if owner is Owner.UNKNOWN:
                owner, holder = Owner.RELATIVE, bare
        elif word[0].isupper() or word[0].isdigit():
            starts = starts or [match.start() for match in _WORD.finditer(text)]
            opens = place == 0 or text[: starts[place]].rstrip()[-1:] in ".!?:;–—\n…"
            named = bare in GIVEN_NAMES and word[0].isupper()
            # "The Nilssons", at the start: a family.
            family = (
                place == 1 and lows[0] == "the" and low.endswith("s") and word[0].isupper() and word[-2:-1].islower()
            )
            owns = named and (low.endswith("'s") or (place > 0 and lows[place - 1] in _OF))
            if (named or family) and owner is Owner.UNKNOWN and (opens or family or owns):
                owner, holder = Owner.NAMED, bare
            if named:
                people.add(bare)
            if named or (not opens and bare not in _OPENERS):
                names.add(bare)
    return _Subject(owner, holder, people, names)


_OF = words_of("of von de")


def _leads_to_relative(words: list[str], place: int, kin: frozenset[str]) -> bool:
    """Return True for "my" in "my older sister": the sister is the subject."""
    own = words[place]
    if own not in ("my", "our", "mi", "mis") and not own.startswith(("mein", "unser", "nuestr")):
        return False
    ahead = [word.removesuffix("'s").removesuffix("'") for word in words[place + 1 : place + 3]]
    return any(word in kin or word.endswith(("-in-law", "-in-laws")) for word in ahead)


def _han_subject(text: str) -> _Subject:
    own = _SELF_HAN.search(text)
    kin = list(_KIN_HAN.finditer(text))
    named = list(_NAME_HAN.finditer(text))
    people = {match.group() for match in (*kin, *named)}
    names = {word.casefold() for word in re.findall(r"[A-Za-z][A-Za-z0-9.+-]+", text)}
    first = min((match.start() for match in (*kin, *named)), default=len(text))
    owner, holder = Owner.UNKNOWN, ""
    if kin or named:
        # 我哥哥 is the brother; 我 and then something else is the speaker.
        if own is None or own.start() >= first or first - own.end() <= 1:
            owner, holder = Owner.RELATIVE, next(m.group() for m in (*kin, *named) if m.start() == first)
        else:
            owner = Owner.SPEAKER
    elif own is not None:
        owner = Owner.SPEAKER
    return _Subject(owner, holder, people, names)


def terms_of(text: str) -> Iterator[str]:
    """Yield the stems of the words that say something; of Chinese, pairs of signs."""
    return chain.from_iterable(map(_stems_of, _WORD.findall(text.casefold())))


@cached_by_text(maxsize=16_384)
def _stems_of(word: str) -> tuple[str, ...]:
    """Return the stem of a word, none of one that says nothing."""
    if _HAN.search(word):
        return tuple(one + other for one, other in pairwise(word))
    word = word.split("'", maxsplit=1)[0]
    if (len(word) < 2 and not word.isdigit()) or word in _FILLERS:
        return ()
    return (_SUFFIX.sub("", word) if len(word) > 4 else word,)


_HEAD = re.compile(
    r"^\W*(?:the|my|our|der|die|das|mein|meine|unser|unsere|el|la|los|las|mi|nuestro|"
    r"nuestra) ((?:[\w'’-]+ ){0,2}[\w'’-]+)",
    re.I,
)


def _head(text: str) -> str:
    """Return the first words after an opening article or possessive: what the statement is about."""
    found = _HEAD.match(text)
    return found.group(1) if found else ""


def share(one: frozenset[str], other: frozenset[str]) -> float:
    """Return how much of the smaller set is in the other, 0 to 1."""
    return len(one & other) / min(len(one), len(other)) if one and other else 0.0


_FULL_NAME = re.compile(r"\b([A-Z][^\W\d_]+)(?= ([A-Z][^\W\d_]+(?:-[A-Z][^\W\d_]+)?)\b)")


def are_namesakes(one: Claim, other: Claim) -> bool:
    """Return True for two people with one given name: "Chris Vega" and "Chris Holm"."""
    if not one.people & other.people:
        return False
    surnames, theirs = _surnames(one.text), _surnames(other.text)
    return any(surname != theirs.get(given, surname) for given, surname in surnames.items())


@cached_by_text(maxsize=1024)
def _surnames(text: str) -> dict[str, str]:
    """Return the surname that follows each given name of a text."""
    found = ((given.casefold(), surname.casefold()) for given, surname in _FULL_NAME.findall(text))
    return {given: surname.removesuffix("'s") for given, surname in found if given in GIVEN_NAMES}


def is_about_another(question: Claim, statement: Claim) -> bool:
    """Return True if a statement is about somebody whom a question does not ask about."""
    if are_namesakes(question, statement):
        return True
    if statement.owner is Owner.SPEAKER:
        return bool(question.people) and not question.people & (statement.people | statement.names)
    if statement.owner is Owner.UNKNOWN:
        return False
    return not statement.people & question.people and not statement.names & question.names
