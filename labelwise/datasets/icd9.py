"""The shape of ICD-9-CM: chapters and blocks by name, and the parent of every code by its form.

Ids carry a prefix, `D-` for diagnoses and `P-` for procedures, because both use the same digits; codes have no dots, as in
MIMIC-III. Ranges are ids too: D-40201 < D-4020 < D-402 < D-401-405 < D-390-459, and P-3893 < P-389 < P-38 < P-35-39.
A chapter without blocks, or a block of a single category, adds no level of its own.
"""

from __future__ import annotations

import re

_CHAPTERS = """
D-001-139 Infectious and parasitic diseases
D-140-239 Neoplasms
D-240-279 Endocrine, nutritional and metabolic diseases, and immunity disorders
D-280-289 Diseases of the blood and blood-forming organs
D-290-319 Mental disorders
D-320-389 Diseases of the nervous system and sense organs
D-390-459 Diseases of the circulatory system
D-460-519 Diseases of the respiratory system
D-520-579 Diseases of the digestive system
D-580-629 Diseases of the genitourinary system
D-630-679 Complications of pregnancy, childbirth, and the puerperium
D-680-709 Diseases of the skin and subcutaneous tissue
D-710-739 Diseases of the musculoskeletal system and connective tissue
D-740-759 Congenital anomalies
D-760-779 Certain conditions originating in the perinatal period
D-780-799 Symptoms, signs, and ill-defined conditions
D-800-999 Injury and poisoning
D-V01-V91 Factors influencing health status and contact with health services
D-E000-E999 External causes of injury and poisoning
P-00 Procedures and interventions, not elsewhere classified
P-01-05 Operations on the nervous system
P-06-07 Operations on the endocrine system
P-08-16 Operations on the eye
P-17 Other miscellaneous diagnostic and therapeutic procedures
P-18-20 Operations on the ear
P-21-29 Operations on the nose, mouth, and pharynx
P-30-34 Operations on the respiratory system
P-35-39 Operations on the cardiovascular system
P-40-41 Operations on the hemic and lymphatic system
P-42-54 Operations on the digestive system
P-55-59 Operations on the urinary system
P-60-64 Operations on the male genital organs
P-65-71 Operations on the female genital organs
P-72-75 Obstetrical procedures
P-76-84 Operations on the musculoskeletal system
P-85-86 Operations on the integumentary system
P-87-99 Miscellaneous diagnostic and therapeutic procedures
"""

_BLOCKS = """
D-001-009 Intestinal infectious diseases
D-010-018 Tuberculosis
D-020-027 Zoonotic bacterial diseases
D-030-041 Other bacterial diseases
D-042 Human immunodeficiency virus infection
D-045-049 Poliomyelitis and other non-arthropod-borne viral diseases of the central nervous system
D-050-059 Viral diseases generally accompanied by exanthem
D-060-066 Arthropod-borne viral diseases
D-070-079 Other diseases due to viruses and chlamydiae
D-080-088 Rickettsioses and other arthropod-borne diseases
D-090-099 Syphilis and other venereal diseases
D-100-104 Other spirochetal diseases
D-110-118 Mycoses
D-120-129 Helminthiases
D-130-136 Other infectious and parasitic diseases
D-137-139 Late effects of infectious and parasitic diseases
D-140-149 Malignant neoplasm of lip, oral cavity, and pharynx
D-150-159 Malignant neoplasm of digestive organs and peritoneum
D-160-165 Malignant neoplasm of respiratory and intrathoracic organs
D-170-176 Malignant neoplasm of bone, connective tissue, skin, and breast
D-179-189 Malignant neoplasm of genitourinary organs
D-190-199 Malignant neoplasm of other and unspecified sites
D-200-208 Malignant neoplasm of lymphatic and hematopoietic tissue
D-209 Neuroendocrine tumors
D-210-229 Benign neoplasms
D-230-234 Carcinoma in situ
D-235-238 Neoplasms of uncertain behavior
D-239 Neoplasms of unspecified nature
D-240-246 Disorders of thyroid gland
D-249-259 Diseases of other endocrine glands
D-260-269 Nutritional deficiencies
D-270-279 Other metabolic and immunity disorders
D-290-294 Organic psychotic conditions
D-295-299 Other psychoses
D-300-316 Neurotic disorders, personality disorders, and other nonpsychotic mental disorders
D-317-319 Intellectual disabilities
D-320-326 Inflammatory diseases of the central nervous system
D-327 Organic sleep disorders
D-330-337 Hereditary and degenerative diseases of the central nervous system
D-338 Pain
D-339 Other headache syndromes
D-340-349 Other disorders of the central nervous system
D-350-359 Disorders of the peripheral nervous system
D-360-379 Disorders of the eye and adnexa
D-380-389 Diseases of the ear and mastoid process
D-390-392 Acute rheumatic fever
D-393-398 Chronic rheumatic heart disease
D-401-405 Hypertensive disease
D-410-414 Ischemic heart disease
D-415-417 Diseases of pulmonary circulation
D-420-429 Other forms of heart disease
D-430-438 Cerebrovascular disease
D-440-449 Diseases of arteries, arterioles, and capillaries
D-451-459 Diseases of veins and lymphatics, and other diseases of circulatory system
D-460-466 Acute respiratory infections
D-470-478 Other diseases of the upper respiratory tract
D-480-488 Pneumonia and influenza
D-490-496 Chronic obstructive pulmonary disease and allied conditions
D-500-508 Pneumoconioses and other lung diseases due to external agents
D-510-519 Other diseases of respiratory system
D-520-529 Diseases of oral cavity, salivary glands, and jaws
D-530-539 Diseases of esophagus, stomach, and duodenum
D-540-543 Appendicitis
D-550-553 Hernia of abdominal cavity
D-555-558 Noninfectious enteritis and colitis
D-560-569 Other diseases of intestines and peritoneum
D-570-579 Other diseases of digestive system
D-580-589 Nephritis, nephrotic syndrome, and nephrosis
D-590-599 Other diseases of urinary system
D-600-608 Diseases of male genital organs
D-610-612 Disorders of breast
D-614-616 Inflammatory disease of female pelvic organs
D-617-629 Other disorders of female genital tract
D-630-633 Ectopic and molar pregnancy
D-634-639 Other pregnancy with abortive outcome
D-640-649 Complications mainly related to pregnancy
D-650-659 Normal delivery, and other indications for care in pregnancy, labor, and delivery
D-660-669 Complications occurring mainly in the course of labor and delivery
D-670-677 Complications of the puerperium
D-678-679 Other maternal and fetal complications
D-680-686 Infections of skin and subcutaneous tissue
D-690-698 Other inflammatory conditions of skin and subcutaneous tissue
D-700-709 Other diseases of skin and subcutaneous tissue
D-710-719 Arthropathies and related disorders
D-720-724 Dorsopathies
D-725-729 Rheumatism, excluding the back
D-730-739 Osteopathies, chondropathies, and acquired musculoskeletal deformities
D-760-763 Maternal causes of perinatal morbidity and mortality
D-764-779 Other conditions originating in the perinatal period
D-780-789 Symptoms
D-790-796 Nonspecific abnormal findings
D-797-799 Ill-defined and unknown causes of morbidity and mortality
D-800-804 Fracture of skull
D-805-809 Fracture of neck and trunk
D-810-819 Fracture of upper limb
D-820-829 Fracture of lower limb
D-830-839 Dislocation
D-840-848 Sprains and strains of joints and adjacent muscles
D-850-854 Intracranial injury, excluding those with skull fracture
D-860-869 Internal injury of thorax, abdomen, and pelvis
D-870-879 Open wound of head, neck, and trunk
D-880-887 Open wound of upper limb
D-890-897 Open wound of lower limb
D-900-904 Injury to blood vessels
D-905-909 Late effects of injuries, poisonings, toxic effects, and other external causes
D-910-919 Superficial injury
D-920-924 Contusion with intact skin surface
D-925-929 Crushing injury
D-930-939 Effects of foreign body entering through body orifice
D-940-949 Burns
D-950-957 Injury to nerves and spinal cord
D-958-959 Certain traumatic complications and unspecified injuries
D-960-979 Poisoning by drugs, medicinal and biological substances
D-980-989 Toxic effects of substances chiefly nonmedicinal as to source
D-990-995 Other and unspecified effects of external causes
D-996-999 Complications of surgical and medical care, not elsewhere classified
D-V01-V06 Potential health hazards related to communicable diseases
D-V07-V09 Need for isolation, other potential health hazards and prophylactic measures
D-V10-V19 Potential health hazards related to personal and family history
D-V20-V29 Health services in circumstances related to reproduction and development
D-V30-V39 Liveborn infants according to type of birth
D-V40-V49 Conditions influencing health status
D-V50-V59 Health services for specific procedures and aftercare
D-V60-V69 Health services in other circumstances
D-V70-V82 Examination and investigation without reported diagnosis
D-V83-V84 Genetics
D-V85 Body mass index
D-V86 Estrogen receptor status
D-V87 Other specified personal exposures and history presenting hazards to health
D-V88 Acquired absence of other organs and tissue
D-V89 Other suspected conditions not found
D-V90 Retained foreign body
D-V91 Multiple gestation placenta status
D-E000 External cause status
D-E001-E030 Activity
D-E800-E807 Railway accidents
D-E810-E819 Motor vehicle traffic accidents
D-E820-E825 Motor vehicle nontraffic accidents
D-E826-E829 Other road vehicle accidents
D-E830-E838 Water transport accidents
D-E840-E845 Air and space transport accidents
D-E846-E848 Vehicle accidents not elsewhere classifiable
D-E849 Place of occurrence
D-E850-E858 Accidental poisoning by drugs, medicinal substances, and biologicals
D-E860-E869 Accidental poisoning by other solid and liquid substances, gases, and vapors
D-E870-E876 Misadventures to patients during surgical and medical care
D-E878-E879 Surgical and medical procedures as the cause of abnormal reaction or later complication
D-E880-E888 Accidental falls
D-E890-E899 Accidents caused by fire and flames
D-E900-E909 Accidents due to natural and environmental factors
D-E910-E915 Accidents caused by submersion, suffocation, and foreign bodies
D-E916-E928 Other accidents
D-E929 Late effects of accidental injury
D-E930-E949 Drugs, medicinal and biological substances causing adverse effects in therapeutic use
D-E950-E959 Suicide and self-inflicted injury
D-E960-E969 Homicide and injury purposely inflicted by other persons
D-E970-E978 Legal intervention
D-E979 Terrorism
D-E980-E989 Injury undetermined whether accidentally or purposely inflicted
D-E990-E999 Injury resulting from operations of war
"""

_CODE = re.compile(r"(D-(?:\d{3}|V\d\d|E\d{3})|P-\d\d)\d{1,2}")  # a category and what follows it


def categories(id: str) -> list[str]:
    """The ids of the categories (3-digit diagnoses, 2-digit procedures) that a range covers; of a category, itself."""
    prefix, first, *rest = id.split("-")
    letter = first.rstrip("0123456789")
    start, end = (int(code.removeprefix(letter)) for code in (first, rest[0] if rest else first))
    return [f"{prefix}-{letter}{number:0{len(first) - len(letter)}}" for number in range(start, end + 1)]


def _table(text: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in text.strip().splitlines())


CHAPTERS = _table(_CHAPTERS)
BLOCKS = _table(_BLOCKS)
NAMES = CHAPTERS | BLOCKS

_CHAPTER_OF = {category: chapter for chapter in CHAPTERS for category in categories(chapter)}
_BLOCK_OF = {category: block for block in BLOCKS for category in categories(block)}


def parent(id: str) -> str | None:
    """The id above a code, block or chapter by the structure of ICD-9-CM; None at the top and for codes of another form."""
    if id in CHAPTERS:
        return None
    if id in BLOCKS:
        return _CHAPTER_OF[categories(id)[0]]
    if id in _CHAPTER_OF:
        return _BLOCK_OF.get(id, _CHAPTER_OF[id])
    code = _CODE.fullmatch(id)
    return id[:-1] if code and code[1] in _CHAPTER_OF else None
