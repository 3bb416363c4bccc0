"""Patterns for lasting facts that English speakers tell about themselves and their people.

Precision over recall: each names what may follow, since "I'm a mess" and "my boss is a clown" do not last.
"""

from __future__ import annotations

import re


def _any_of(words: str) -> str:
    return f"(?:{'|'.join(word.replace('_', ' ') for word in words.split())})"


_AM = r"\b(?:I['’]?m|I am|we['’]re|we are)(?: (?:now|also|actually|currently|still|just|originally|only|a|an))*"
_I = r"\b(?:I|we)(?: (?:also|actually|currently|still|just|now|recently|finally|mostly|mainly|usually))*"
_HAVE = r"\b(?:I|we)(?:['’]?ve| have| just| recently| finally| also| both)*"
_UP_TO_3 = r"(?:[\w\-'’]+ ){0,3}"
_NUMBER = r"(?:\d{1,2}|an?|one|two|three|four|five|six|seven|eight|nine|ten|twin)"
OCCUPATION = _any_of(
    """accountant actor actress analyst anaesthetist architect artist author baker barber barista bartender biologist
    bookkeeper botanist builder bus_driver carpenter cashier chef chemist civil_servant cleaner coach composer
    conductor consultant cook copywriter counsell?or dancer data_scientist dentist designer developer devops\\w*
    dietitian director doctor economist editor electrician engineer entrepreneur farmer firefighter flight_attendant
    florist freelancer gardener geologist graphic_designer hairdresser historian illustrator interpreter journalist
    judge lawyer lecturer librarian manager mathematician mechanic midwife musician nanny nurse nutritionist
    optician painter paralegal paramedic pastor pharmacist photographer physicist physiotherapist pilot plumber poet
    police_officer politician postdoc prison_guard producer product_manager professor programmer project_manager
    psychiatrist psychologist radiologist realtor receptionist researcher retiree sailor salesperson scientist
    secretary singer social_worker soldier solicitor surgeon surveyor tailor tattooist taxi_driver teacher therapist
    tour_guide trainer translator truck_driver tutor vet veterinarian waiter waitress welder writer student pupil
    undergrad\\w* freshman sophomore phd_\\w+ (?:single_)?(?:mom|mum|dad|father|mother|parent)(?=_(?:of|to))"""
)
_STATE = _any_of(
    """married divorced single widowed engaged pregnant retired unemployed self-employed left-handed ambidextrous
    colou?r-?_?blind deaf blind bilingual dyslexic autistic diabetic epileptic asthmatic vegan vegetarian pescatarian
    bisexual gay lesbian trans(?:gender)? non-?binary adopted teetotal sober muslim christian jewish catholic hindu
    buddhist atheist introvert\\w* extrovert\\w*"""
)
_ILLNESS = _any_of(
    """(?:type_[12]_)?diabetes asthma c(?:o)?eliac\\w* adhd autism arthritis epilepsy migraines? hypertension
    high_blood_pressure high_cholesterol ibs crohn['’]?s lupus eczema psoriasis anxiety depression insomnia
    scoliosis an(?:a)?emia tinnitus dyslexia endometriosis pcos ptsd ocd gout gerd hay_fever sleep_apn(?:o)?ea
    glaucoma fibromyalgia cancer parkinson['’]?s allerg(?:y|ies) intolerance astigmatism (?:a_)?heart_condition
    (?:a_)?bad_(?:back|knee)"""
)
_LANGUAGE = _any_of(
    """English French German Spanish Italian Portuguese Dutch Chinese Mandarin Cantonese Japanese Korean Russian Arabic
    Hebrew Hindi Urdu Turkish Polish Swedish Danish Norwegian Finnish Greek Ukrainian Vietnamese Thai Indonesian
    Tamil Bengali Swahili Farsi Persian Czech Slovak Hungarian Romanian Serbian Croatian Catalan Welsh Irish Tagalog
    Malay"""
)
_PLAYED = _any_of(
    """piano guitar violin viola cello flute clarinet trumpet saxophone sax drums bass harp ukulele banjo oboe
    accordion organ harmonica tennis football soccer basketball volleyball badminton squash golf chess cricket rugby
    hockey bridge table_tennis softball baseball handball padel"""
)
_ANIMAL = _any_of(
    """dogs? cats? pupp(?:y|ies) kittens? rabbits? bunn(?:y|ies) parrots? budgies? hamsters? guinea_pigs? ferrets?
    horses? pon(?:y|ies) goldfish turtles? tortoises? snakes? lizards? chickens? hens? goats? bees greyhounds?
    poodles? labradors? retrievers? corgis? terriers? huskies huskys? beagles? dachshunds? geckos? canar(?:y|ies)"""
)
_CHILD = r"(?:kids?|child(?:ren)?|sons?|daughters?|brothers?|sisters?|siblings?|boys|girls|twins|grandchild(?:ren)?)"
RELATIVE = (
    r"(?:(?:older|younger|elder|big|little|twin|step|half|ex|late|best|oldest|eldest|youngest|foster|adopted|close|new|"
    r"only|middle|maternal|paternal)[- ]?){0,2}"
    r"(?:sister|brother|mom|mum|mam|mother|dad|father|parents?|wife|husband|hubby|spouse|partner|girlfriend|boyfriend|"
    r"gf|bf|fianc[eé]e?|son|daughter|kids?|child|children|baby|uncle|aunt|auntie|cousin|nephew|niece|grandmother|"
    r"grandma|granny|grandfather|grandpa|grandad|grandson|granddaughter|roommate|flatmate|housemate|boss|colleague|"
    rf"co-?worker|friend|bestie|neighbou?r|{_ANIMAL}|in-?laws|(?:mother|father|sister|brother|son|daughter)-in-law|"
    r"doctor|dentist|therapist|landlord|landlady|mentor|stepmother|stepfather|stepson|stepdaughter|twins)s?"
)
_CALLED = r"[A-Z][\w'’\-]*"
_EVERY = (
    r"(?:every (?:single )?(?:other )?(?:day|morning|evening|night|week|month|year|summer|winter|weekend|(?:mon|tues|"
    r"wednes|thurs|fri|satur|sun)day)|on (?:(?:mon|tues|wednes|thurs|fri|satur|sun)days|weekends|weekdays)|(?:once|"
    r"twice|(?:two|three|four|five|\d) times) (?:a|per) (?:day|week|month|year)|most (?:days|mornings|evenings))"
)
_SO_LONG = (
    r"(?:since (?:I was|\d|(?:early|late|last|my|the|primary|high|college|university|school|childhood|20|19|January|"
    r"February|March|April|May|June|July|August|September|October|November|December)\b)|for (?:(?:the )?(?:last|"
    r"past) )?"
    rf"(?:about |over |almost |nearly |around |more than |at least )?(?:{_NUMBER}|\d+|several|many|few|a few|a "
    rf"couple of) "
    r"(?:years?|yrs?|months?|decades?))"
)
_DOING = _any_of(
    """wake get_up go run swim cycle walk cook eat drink read meditate practi[cs]e train play take volunteer work
    visit call do attend teach climb dance sing bake hike jog ride fast meet"""
)
_REST = r"[^.!?\n]{0,80}?"

SELF = (
    r"\b(?:I['’]?m|I am|we['’]re|we are)(?: (?:now|also|actually|currently|still|just|originally))* (?:an?|the|"
    r"both|one of the) "
    rf"(?:(?!(?:who|that|with|of|for|to|my|like|about|when|in|and|but|bit|lot)\b)[\w\-'’]+ ){{0,3}}{OCCUPATION}\b"
    r"(?! (?:of (?:habit|course|my)|at heart))",
    r"\bI (?:work|worked) as an? (?!result\b)\w",
    r"\bI (?:mostly |usually |only |still )?work (?:remotely|from home|part[- ]time|full[- ]time|nights|night "
    r"shifts|shifts|in (?!the (?:morning|afternoon|evening|office|garden|dark)|my|a (?:minute|bit|mess|hurry)|silence|"
    r"peace|progress|mysterious|\d|order|general|theory)\w)",
    rf"{_I} teach (?!(?:you|him|her|them|myself|me|people)\b)\w",
    r"\bI (?:study|studied|major(?:ed)? in) (?!(?:hard|a lot|for|at night|better|best|it|this|that|the|tonight|"
    r"late|with|in)\b)\w",
    r"\bI['’]?(?:m| am) (?:currently |now |also )?(?:studying|majoring in) (?!(?:hard|for|all|at home|tonight|"
    r"today|it|this|now)\b)\w",
    rf"{_I} (?:own|run|manage|founded|co-founded) (?:an?|my own|our own|two|three|the) "
    r"(?:[\w\-]+ ){0,3}(?:shop|store|company|business|bakery|caf[eé]|restaurant|studio|team|farm|agency|startup|blog|"
    r"podcast|channel|school|clinic|hotel|gym|bar|pub|garage|firm|practice|salon|club|charity|nonprofit|gallery|"
    r"bookshop|bookstore|house|flat|apartment|boat|car|motorbike|motorcycle|bike|van|truck|tesla)\b",
    rf"\bI (?:also )?(?:speak|know) (?:(?:fluent|some|basic|a (?:bit|little)(?: of)?|both|decent|good|native) )"
    rf"?{_LANGUAGE}\b",
    rf"{_AM} (?:fluent|a native speaker|native) (?:in|of) {_LANGUAGE}",
    r"\bmy (?:first|native|second) language is \w|\bmy mother tongue is \w",
    r"\b(?:I|we) (?:was|were) (?:born|raised|brought up) (?:and raised )?(?:in|on|near) \w",
    r"\bI (?:mostly )?grew up (?:in|on|near|around|with(?:out)?|speaking) \w",
    rf"{_AM} from (?-i:[A-Z])\w",
    r"\bI come from (?-i:[A-Z])\w",
    r"\bI['’]?(?: a)?m (?:only |now |already |about to be |turning )?\d{1,2} (?:years? old|yrs? old|y/?o)\b",
    r"\bI['’]?(?: a)?m (?:only |now |already )?[1-9]\d(?= and\b|\s*[.,!;]|$)",
    rf"\b(?:I['’]?(?: a)?m|I was born|I['’]?ve been) (?:now |also |happily |still |recently |actually |sort of |"
    rf"fully )*{_STATE}"
    r"\b(?! (?:to (?:a|the) (?:idea|fact)|out|by|with (?:work|the)|handed|of|about|minded|again|today|to (?:my|the|"
    r"this) (?:job|work|phone|couch|game|grind)))",
    rf"\bI (?:have|['’]?ve got|got|have got|suffer from|live with|struggle with) {_UP_TO_3}{_ILLNESS}\b",
    r"\bI (?:was|['’]?ve been|have been|got|just got) (?:recently )?diagnosed with \w",
    r"\b(?:I['’]?m|I am|we['’]re) (?:\w+ )?(?:(?:allergic|intolerant|sensitive) to \w|\w+[- ]intolerant\b)",
    rf"{_HAVE} (?:have|has|got|own) {_NUMBER} {_UP_TO_3}(?:{_ANIMAL}|{_CHILD})\b",
    rf"{_I} have (?:[\w\-]+ ){{0,3}}(?:{_ANIMAL}|{_CHILD}) (?:named|called) (?-i:{_CALLED})",
    r"\bI (?:drive|ride) (?:an?|the|my) (?!(?:hard|lot|bit|bus|train|car|bike|taxi|cab|while|long|wave|fine)\b)\w",
    rf"\bI (?:also )?play (?:the )?(?:electric |acoustic |bass |classical )?{_PLAYED}\b",
    r"\b(?:I['’]?m|I am) (?:also |currently |still )?(?:learning|training for) "
    r"(?!(?:it|this|that|so|a (?:lot|ton|bit|few)|tons|from|more|about|as|new things|something|the hard|things|lots|"
    r"to (?:be|let|deal|accept|live|trust|love|say|see|understand|appreciate))\b)\w",
    r"\b(?:I['’]?m|I am) (?:also |currently |still )?taking [\w ]{1,30}?(?:lessons|classes|courses?|medication|"
    r"antidepressants|insulin)\b",
    rf"\bI['’]?(?:ve| have) been [a-z]+ing (?!(?:for|since)\b){_REST}\b{_SO_LONG}",
    rf"\bI (?:have(?:n['’]?t)?|ha?vn['’]?t|['’]ve not) (?:eaten|had|smoked|drunk|touched|eat)"
    rf"\b{_REST}\b{_SO_LONG.replace('for ', '(?:for|in) (?:like )?', 1)}",
    rf"\bI (?:\w+ )?{_DOING}\b{_REST}\b{_EVERY}",
    rf"\bevery (?:morning|evening|night|day|week|weekend|(?:mon|tues|wednes|thurs|fri|satur|sun)day),? I (?:\w+ )"
    rf"?{_DOING}\b",
    rf"\bI (?:usually|normally|typically|generally|rarely|seldom) {_DOING}\b",
    r"\bI (?:don['’]?t|do not|never) (?:smoke|drink(?: alcohol)?|drive|eat (?:meat|pork|beef|dairy|gluten|sugar|"
    r"fish|eggs))\b(?! (?:it|that|this)\b)",
    r"\bmy (?:flat|apartment|house|place|home|studio) (?:is|has|doesn['’]?t have) (?:an? |no |on |in |near |at |"
    r"close to |next to |above |across )(?!(?:mess|disaster|bit|fire|order|shambles|state|wreck)\b)\w",
    r"\bmy (?:name|hometown|home town|nationality|height|shoe size|blood type|pronouns|time ?zone|job title|hobby|"
    r"hobbies|degree|thesis|star sign|middle name|last name|surname|first name|nickname|username|github|handle)(?: is|"
    r" are|['’]s) (?!not\b)\w",
    r"\bmy (?:new )?(?:phone )?(?:number|phone) (?:has )?changed\b|\bmy new (?:number|address|email|phone number) "
    r"is\b",
)
_LASTING = (
    rf"(?:(?:is|was|['’]s|are)(?: (?:now|also|actually|a|an|the|only|currently))* (?:{_UP_TO_3}(?:{OCCUPATION}|"
    rf"{_STATE})\b|\d{{1,2}}(?: (?:years|yrs|months)|\b(?! ?(?:min|hour|%|km|miles|percent|times|pm|am|/|:)))|"
    rf"from (?-i:[A-Z])|(?:named|called) \w|"
    r"born (?:in|on)|(?:allergic|intolerant) to|deaf\b|(?:terminally )?ill\b|in (?:first|second|third|\d\w\w|high|"
    r"middle|primary|elementary|nursing|medical|law) (?:grade|school|year)|(?:golden|border|maine|german|siamese|"
    r"persian|bengal|tabby)\b|"
    rf"(?:living|working|studying|based) (?:in|at|for)|{_UP_TO_3}{_ANIMAL}\b|expecting\b)"
    r"|(?:now |still |currently |also |both )?(?:lives?|works?|stud(?:y|ies)|teach(?:es)?|moved to|grew up in|was "
    r"born|speaks?|plays? (?:the |for )?\w|"
    r"owns?|runs? (?:a|an|the|his|her)|goes to|go to|attends?|graduat\w+|retired|turned \d|just turned|turns \d|is "
    r"turning \d|passed away|died|got (?:married|engaged|divorced|promoted)|had a baby|is (?:pregnant|expecting)|(?:is|"
    r"are) getting (?:married|engaged|divorced)|married|divorced|emigrated|immigrated|"
    rf"(?:has|have|['’]s got) (?:{_NUMBER} {_UP_TO_3}(?:{_ANIMAL}|{_CHILD})|{_ILLNESS}|{_UP_TO_3}{_ILLNESS})|"
    r"(?:can['’]?t|cannot|doesn['’]?t|don['’]?t|never) (?:eat|drink|drive|speak)|(?:loves?|likes?|hates?|adores?|"
    r"prefers?|dislikes?) "
    r"(?!(?:it|this|that|them|him|her|me|you|us|to|how|the idea|the way|what|when|being|their|his|everything)\b)\w)"
    r"\b)"
)
RELATIONS = (
    rf"\b(?:my|our) {RELATIVE}(?:,? (?-i:{_CALLED})(?: (?-i:{_CALLED}))?,?)? {_LASTING}",
    rf"\b(?:my|our) {RELATIVE}['’]s (?:name|birthday|phone number|number|email|favou?rite [\w ]{{1,20}}|job|"
    rf"wedding|middle name|anniversary)"
    r" (?:is|are|was|will be) (?!(?:coming|soon|today|tomorrow|great|fun|cool|so|not)\b)\w",
    rf"\b(?:my|our) {RELATIVE},? (?:named|called|is called|is named|['’]s name is|['’]s called) (?-i:{_CALLED})",
    rf"(?-i:{_CALLED}) is (?:my|our) (?!favou?rite){RELATIVE}\b",
    r"\b(?:my|our) (?:wedding )?anniversary is \w",
)
_GOT = (
    r"(?:got (?:married|engaged|divorced|promoted|fired|laid off|baptized|my (?:driver['’]?s )?(?:licen[cs]e|"
    r"degree|phd|diploma|citizenship|visa|green card)|"
    rf"(?:a|an|our|my) (?:new |first |second )?(?:{_ANIMAL}|job|house|car|tattoo|flat|apartment|promotion)|"
    rf"accepted (?:in)?to)"
    rf"|had a (?:baby|miscarriage|stroke|heart attack|son|daughter)|had (?:my|our) (?:first|second|third) (?:child|"
    rf"baby|kid|son|daughter)|adopted (?:a|an|our|my|two|three|\d)|gave birth"
    r"|(?:bought|sold) (?:an?|our|my|the) (?:[\w\-]+ ){0,2}(?:house|flat|apartment|car|van|motorbike|motorcycle|"
    r"boat|cottage|cabin|business)"
    r"|graduated (?:from|in|with|last)|retired (?:from|in|last|after)|quit (?:smoking|drinking|sugar|caffeine|my "
    r"job|my (?:old )?job|social media)|stopped (?:smoking|drinking|eating (?!it|this|that)\w)|gave up (?:smoking|"
    r"drinking|alcohol|meat|sugar|coffee|caffeine|dairy|gluten|my job)|broke up with|broke my (?:\w+ )?(?:arm|leg|"
    r"wrist|ankle|foot|hand|toe|finger|hip|collarbone|nose|shoulder)|passed my (?:\w+ )?(?:test|exam|exams|bar|boards)|"
    r"ran (?:a|the|my first) (?:[\w\-]+ ){0,2}marathon|moved in with|founded (?:a|an|my)|published (?:a|an|my)|"
    r"enrolled (?:in|at)|lost (?:my|our) (?:job|mother|mom|mum|father|dad|dog|cat|brother|sister|grandmother|"
    r"grandfather|wife|husband|baby|house)|started (?:a new job|a business|my own|our own|university|college|therapy|"
    r"medication|a phd|my phd|learning|taking \w+ (?:class|lesson)\w*|playing the)|took up \w|signed up for (?:a|an|"
    r"the) (?:[\w\-]+ ){0,2}(?:class|course|marathon|gym|membership|race|lessons?|triathlon)|joined (?:a|an|"
    r"the) (?:[\w\-]+ ){0,2}"
    r"(?:choir|club|gym|band|team|orchestra|church|group|league|army|navy))"
)
_AGO = (
    r"(?:yesterday|last (?:night|week|weekend|month|year|spring|summer|fall|autumn|winter|(?:mon|tues|wednes|thurs|"
    r"fri|satur|sun)day)|the other day|"
    rf"(?:{_NUMBER}|\d+|a few|a couple of|several) (?:days?|weeks?|weekends?|months?|years?) ago|recently|this "
    rf"(?:past )?(?:week|weekend|month|year)|"
    r"(?:on|in|back in) (?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|January|February|March|April|May|June|July|"
    r"August|September|October|November|December|(?:19|20)\d\d))\b"
)
_DID = (
    r"(?:went (?:to (?!(?:bed|sleep|work|the (?:store|gym|bathroom|shop|supermarket|office)|school|a (?:meeting|shop|"
    r"store)|get|see (?:if|what)|town)\b)|on an? |camping|hiking|skiing|surfing|sailing|kayaking|backpacking|diving)|"
    r"attended|visited|hosted|organi[sz]ed|performed|presented|gave a (?:talk|speech)|participated in|competed|"
    r"took (?:my|our|the) (?:kids|family|son|daughter|dog|mom|mum|dad|parents|wife|husband)|travel+ed to|flew to|hiked|"
    r"won|celebrated|volunteered|finished (?:writing|reading|my|a|the)|completed|spoke at|took part in|moved (?:into|"
    r"out)|met up "
    r"with|ran (?:a|the)|opened (?:my|our|a)|launched (?:my|our|a)|applied (?:to|for)|started (?:a|an|my|our|learning|"
    r"working|doing|taking|volunteering)|signed up for|joined|bought (?:a|an|my)|got (?:a|an|my) (?:[\w\-]+ ){0,2}(?:"
    r"tattoo|scholarship|award|degree|certificate|promotion|offer|puppy|kitten|dog|cat))"
)
EVENTS = (
    rf"{_HAVE} (?:just |recently |finally |also |both )*{_GOT}",
    rf"^(?:(?:also|and|so|oh|btw|update|hey|news|guess what)[,:!]? |\W)*(?:just |recently |finally )?{_GOT}",
    r"\b(?:I|we) (?:was|were) (?:promoted|laid off|fired|diagnosed|accepted|hospitali[sz]ed|elected|evicted|"
    r"naturali[sz]ed)\b",
    rf"\b(?:I|we) (?:just |also |finally |actually |recently )*{_DID}\b[^.!?\n]{{0,100}}?\b{_AGO}",
    rf"^(?:(?:so|hey|oh|well|and|also|btw)[,!]? )*{_AGO},? (?:I|we) (?:just |also |finally |actually |recently )"
    rf"*{_DID}\b",
    rf"\b(?:I|we) became (?:a|an|the) (?:{_UP_TO_3}{OCCUPATION}|father|mother|dad|mum|mom|parent|grand\w+|citizen|"
    rf"us citizen|homeowner\w*|aunt|uncle)",
)
_LATER = (
    r"(?:next (?:week|month|year|spring|summer|fall|autumn|winter|semester|term|(?:mon|tues|wednes|thurs|fri|satur|"
    r"sun)day|January|February|March|April|May|June|July|August|September|October|November|December)|(?:in|this|by|"
    r"over|during|at|for|around|on) (?:the )?(?:early |late |mid-?|end of )?(?:spring|summer|fall|autumn|winter|"
    r"christmas|easter|new year['’]?s?|thanksgiving|diwali|ramadan|eid|halloween|hanukkah|passover|holidays|January|"
    r"February|March|April|May|June|July|August|September|October|November|December|20\d\d|\d{1,2}(?:st|nd|rd|th))|"
    r"in (?:a few|two|three|four|five|six|\d+|a couple of) (?:weeks|months|years)|when I (?:retire|graduate|turn)|"
    r"on (?:January|February|March|April|May|June|July|August|September|October|November|December))\b"
)
_BIG_STEP = (
    r"(?:visit|mov(?:e|ing) (?!on\b)|travel|go(?:ing)? (?:to|back|on|for)|marry|propose|retire|buy(?:ing)? an? "
    r"(?:house|flat|car|apartment|home|boat)|adopt|open(?:ing)? (?:a|an|my|our)|learn(?:ing)? (?:to )?\w|study|"
    r"apply (?:to|for)|quit|leav(?:e|ing) (?:my|for)|run(?:ning)? (?:a|the|for)|hav(?:e|ing) (?:kids|children|a baby|"
    r"another)|host|fly|return to|relocate|train for|write a (?:book|novel|memoir)|hike|climb|become|becoming|"
    r"start(?:ing)? (?:a|an|my|our) (?:[\w\-]+ ){0,2}"
    r"(?:business|family|company|job|degree|course|school|shop|garden|blog|podcast|band)|get(?:ting)? (?:married|"
    r"engaged|a (?:dog|cat|puppy|degree|phd|tattoo)))\b"
)
_PLANNED = (
    r"(?:I['’]?m|I am|we['’]?re|we are|(?:me and|my \w+ and I are|[A-Z]\w+ and I are) ?[A-Z]?\w{0,15}(?: are)?)"
    r"(?: (?:also|really|still|now|currently|definitely|finally|both|all|actually))*"
)
PLANS = (
    rf"\b{_PLANNED} (?:going to|gonna|moving|flying|travel+ing|driving|visiting|starting|running|getting|having|taking|"
    rf"going|hosting|attending|spending|launching|opening|hiking|cycling|throwing|doing|competing) {_REST}\b{_LATER}",
    rf"\b{_PLANNED} (?:planning (?:(?:an?|our|my) (?!few\b)(?:[\w\-]+ ){{0,3}}(?:trip|wedding|vacation|holiday|"
    rf"party|move|visit|honeymoon|reunion|"
    rf"tour|getaway|festival|fundraiser|event|exhibition|surprise)|(?:to|on) {_BIG_STEP})|saving (?:up )?(?:for|to)"
    rf"|training for|signed up for|expecting (?:a|our|twins)|"
    r"getting (?:married|engaged|divorced)|due in|moving to (?-i:[A-Z]))",
    rf"\b(?:I|we) (?:plan|intend) (?:to {_BIG_STEP}|to {_REST}\b{_LATER})|\b{_PLANNED} planning to {_REST}\b{_LATER}",
    rf"\b(?:I|we)(?:['’]ll| will| shall) (?:be )?(?:move|start|visit|fly|go|travel|run|turn|graduate|retire|marry|"
    rf"launch|begin|moving|starting|visiting|flying|going|travell?ing)\b{_REST}\b{_LATER}",
    rf"\b(?:I|we)(?:['’]ve| have)(?: got)? (?:an?|my|our|the) (?:[\w\-']+ ){{0,3}}(?:appointment|interview|exam|"
    rf"surgery|wedding|operation|flight|deadline|checkup|check-up|trip|vacation|holiday|reunion|"
    rf"due date)\b{_REST}(?:\b{_LATER}|\bon (?:the )?(?:\d|mon|tues|wednes|thurs|fri|satur|sun))",
    r"\bmy (?:(?:biggest |long-term |life ?(?:long)?|childhood )(?:goal|dream)|dream|ambition|resolution|goal "
    r"(?:for \w+|this year|in life)) is to \w",
    rf"\bmy (?:goal|plan|aim) is to {_BIG_STEP}",
)
# What is said like that is not settled, or gone with the day.
UNSETTLED = re.compile(
    r"\b(?:maybe|might|perhaps|probably not|idk|not sure|thinking (?:about|of)|considering|wondering|could be|would|"
    r"wouldn['’]?t|if (?:I|we)|should I|kidding|joking|jk|just pretend\w*|almost|nearly|feels? like|sometimes wish)\b",
    re.IGNORECASE,
)
NEAR = re.compile(
    r"\b(?:today|tonight|tomorrow|this (?:morning|afternoon|evening)|right now|later|in (?:a|an|\d+) (?:minute|hour|"
    r"sec\w*|bit|while)|soon|now)\b",
    re.IGNORECASE,
)
